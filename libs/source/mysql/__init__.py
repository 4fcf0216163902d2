"""What readers of MySQL share, by whichever road its changes come: connections, the snapshot, settings of both."""
