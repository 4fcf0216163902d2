# Runs "$@", and anew whenever it ends, in the same container (values.development). Who copied files in ends the process of service.pid.
child=
trap 'trap - TERM; kill -TERM "$child" 2>/dev/null; wait "$child"; exit "$?"' TERM
while true; do
    "$@" &
    child=$!
    echo "$child" > "${TMPDIR:-/tmp}/service.pid"
    wait "$child"
    sleep 1
done
