// What has a node's pods obey NetworkPolicies: the engine of kube-network-policies, asked about the first packet of each connection.
//
// Its own program has nftables hand it the packets, for which a kernel needs NFT_QUEUE. This one takes them from a queue that rules of
// iptables fill, whatever those rules are. A packet that nobody judges is dropped by the kernel.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	nfqueue "github.com/florianl/go-nfqueue/v2"
	"github.com/mdlayher/netlink"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file by which the API is reached")
	node := flag.String("node", "", "name of the node")
	queue := flag.Uint("queue", 100, "number of the queue")
	listen := flag.String("listen", "127.0.0.1:9080", "where it is known that connections are judged")
	flag.Parse()
	if err := run(context.Background(), *kubeconfig, *node, uint16(*queue), *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node string, queue uint16, listen string) error {
	engine, err := startEngine(ctx, kubeconfig, node)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	if err := judge(ctx, engine, queue, failed); err != nil {
		return err
	}
	go func() { failed <- http.ListenAndServe(listen, nil) }()
	return <-failed
}

// startEngine returns once every policy, pod and namespace of now is known.
func startEngine(ctx context.Context, kubeconfig, node string) (*networkpolicy.PolicyEngine, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// As its own program does: an empty list of rules allows nothing, and the engine sees that one only where it is decoded as nil.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces, pods := factory.Core().V1().Namespaces(), factory.Core().V1().Pods()
	byAddress, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	engine := networkpolicy.NewPolicyEngine(
		podinfo.NewInformerProvider(pods, namespaces, nil, []podinfo.IPResolver{byAddress}),
		[]api.PolicyEvaluator{
			networkpolicy.NewStandardNetworkPolicy(node, namespaces, pods, factory.Networking().V1().NetworkPolicies()),
		},
	)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return engine, nil
}

// judge answers for the packets of the queue from now on; what ends that goes into failed.
func judge(ctx context.Context, engine *networkpolicy.PolicyEngine, number uint16, failed chan<- error) error {
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      number,
		MaxPacketLen: 128, // headers
		MaxQueueLen:  1024,
		Copymode:     nfqueue.NfQnlCopyPacket,
		WriteTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	verdict := func(taken nfqueue.Attribute) int {
		judged := nfqueue.NfDrop
		if isAllowed(ctx, engine, *taken.Payload) {
			judged = nfqueue.NfAccept
		}
		if err := queue.SetVerdict(*taken.PacketID, judged); err != nil {
			klog.ErrorS(err, "no verdict was given")
		}
		return 0
	}
	return queue.RegisterWithErrorFunc(ctx, verdict, func(err error) int {
		if reading, ok := err.(*netlink.OpError); ok && (reading.Timeout() || reading.Temporary()) {
			return 0
		}
		failed <- err
		return 1
	})
}

func isAllowed(ctx context.Context, engine *networkpolicy.PolicyEngine, headers []byte) bool {
	packet, err := network.ParsePacket(headers)
	if err != nil {
		klog.ErrorS(err, "not a packet that can be judged")
		return false
	}
	allowed, err := engine.EvaluatePacket(ctx, &packet)
	if err != nil || !allowed {
		klog.InfoS("refused", "from", packet.SrcIP, "to", packet.DstIP, "port", packet.DstPort, "protocol", packet.Proto, "error", err)
		return false
	}
	return true
}
