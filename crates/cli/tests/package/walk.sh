#!/usr/bin/env bash
# walk.sh PACKAGES WORK: runs what README.md and docs/guide/operators.md tell a newcomer to type, word by word, in an
# overlay over this system and on four hosts. SERVER, RELAY, RELAY1 and RELAY2 are their names. A line that nobody here
# knows fails the test. Exit code 77 where no overlay can be made.
set -euo pipefail
packages=$1 work=$2/walk
tree=$(cd "$(dirname "$0")/../../../.." && pwd)
. "$(dirname "$0")/overlay.sh"

# Hosts: a namespace of the network each, routed here. They share the files.
declare -A host
nodes=()
trap 'kill "${nodes[@]}" "${host[@]}" $(cat "$root"/tmp/*.pid 2>/dev/null) 2>/dev/null || true' EXIT
add_host() {
    unshare --net sleep 1000 &
    host[$1]=$!
    until [ "$(readlink "/proc/${host[$1]}/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
    ip link add "to-$1" type veth peer name eth0 netns "${host[$1]}"
    ip address add "10.9.$2.1/24" dev "to-$1"
    ip link set "to-$1" up
    within "$1" ip link set lo up
    within "$1" ip address add "10.9.$2.2/24" dev eth0
    within "$1" ip link set eth0 up
    within "$1" ip route add default via "10.9.$2.1"
}
within() { nsenter --target "${host[$1]}" --net "${@:2}"; }
echo 1 > /proc/sys/net/ipv4/ip_forward
nth=1
for name in server relay1 relay2 client; do add_host $name $((nth++)); done
# The guide's example of a configuration names its upstreams by address.
within server ip address add 192.0.2.1/32 dev lo
ip route add 192.0.2.1 via 10.9.1.2
within relay1 ip address add 198.51.100.1/32 dev lo
ip route add 198.51.100.1 via 10.9.2.2
# A file of its own: the system's may be a mount of its own, which an overlay does not show.
printf '127.0.0.1 localhost\n10.9.1.2 SERVER\n10.9.2.2 RELAY RELAY1\n10.9.3.2 RELAY2\n' > "$work/hosts"
[ -e "$root/etc/hosts" ] || touch "$root/etc/hosts"
mount --bind "$work/hosts" "$root/etc/hosts"

# block FILE TEXT LANGUAGE: the first block of code of a language behind a line that begins with TEXT.
block() {
    awk -v text="$2" -v fence="\`\`\`$3" 'index($0, text) == 1 {seen = 1}
        {line = $0; sub(/^ +/, "", line)}
        is_code && line == "```" {exit}
        is_code {print line}
        seen && line == fence {is_code = 1}' "$tree/$1"
}

prelude="cd /root; export DEBIAN_FRONTEND=noninteractive"
said=$work/said
# at HOST LINE: types a line there.
at() { within "$1" chroot "$root" bash -c "$prelude"$'\n'"$2" >"$said" 2>&1 </dev/null || { echo "at $1: $2"; cat "$said"; exit 1; }; }
# stays HOST LINE: types a line there whose program stays, and waits until it is ready.
stays() {
    local log=$work/node-${#nodes[@]}
    nsenter --target "${host[$1]}" --net chroot "$root" bash -c "$prelude"$'\n'"exec $2" >"$log" 2>&1 </dev/null &
    nodes+=($!)
    for _ in $(seq 200); do
        ! grep -q '^ready:' "$log" || return 0
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done
    echo "at $1: $2"; cat "$log"; exit 1
}
end_nodes() {
    kill "${nodes[@]}"
    # Of a node below `runuser` the code is that of the signal.
    for node in "${nodes[@]}"; do wait "$node" || [ $? = 143 ]; done
    nodes=()
}
expect() { grep -q -- "$1" "$said" || { echo "\`$1\` was not said, but:"; cat "$said"; exit 1; }; }

# Every line of a block at the host that it is for.
walk() {
    local line lines=0
    while IFS= read -r line; do
        lines=$((lines + 1))
        case $line in
            '' | 'make demo'* | 'starhop gateway '*) ;; # nothing to do, or tested by itself
            'make package && '*) at client "${line#make package && }" ;;
            'starhop key new '*) at client "${line%%#*}"; prelude+="; ${line##*&& }" ;;
            'export '*) prelude+="; ${line%%#*}" ;;
            'runuser '* | 'install '* | 'editor '* | 'systemctl '*) at relay1 "$line" ;;
            'starhop serve '*) stays server "$line" ;;
            'starhop relay '*SERVER*) stays relay1 "$line" ;;
            'starhop relay '*) stays relay2 "$line" ;;
            'starhop get '*) at client "$line"; inside cmp /srv/films/holiday.mkv /root/holiday.mkv; rm "$root/root/holiday.mkv" ;;
            'starhop status'*) at relay1 "$line"; expect 'relay on' ;;
            *) echo "a line that this test does not know: $line"; exit 1 ;;
        esac
    done
    [ $lines -ge "$1" ] || { echo "$lines lines of $1"; exit 1; }
}

mkdir -p "$root/root/target" "$root/srv/films"
cp -r "$packages" "$root/root/target/package"
head -c 3000000 /dev/urandom > "$root/srv/films/holiday.mkv"
walk 10 < <(block README.md '# Starhop' sh)
end_nodes
echo "test the_readmes_first_transfer_works_as_it_is_written ... ok"

rm "$root/root/domain.key"
walk 6 < <(block docs/guide/operators.md '## A path' sh)
end_nodes
echo "test the_operators_guides_path_works_as_it_is_written ... ok"

# Stands for systemd, which cannot run here: a unit's commands as its user, and its signals.
cat > "$root/usr/local/sbin/systemctl" <<'END'
#!/bin/bash
set -e
unit=${@: -1}
setting() { sed -n "s/^$1=//p" "/usr/lib/systemd/system/$unit.service"; }
as_user="setpriv --reuid $(setting User) --regid $(setting Group) --init-groups --bounding-set=-all --no-new-privs"
directory=/run/$(setting RuntimeDirectory)
case $1 in
    enable)
        install -d -o "$(setting User)" -g "$(setting Group)" -m "$(setting RuntimeDirectoryMode)" "$directory"
        $as_user $(setting ExecStartPre)
        RUNTIME_DIRECTORY=$directory $as_user $(setting ExecStart) >"/tmp/$unit.log" 2>&1 &
        echo $! > "/tmp/$unit.pid"
        for _ in $(seq 200); do ! grep -q '^ready:' "/tmp/$unit.log" || exit 0; sleep 0.05; done
        cat "/tmp/$unit.log"
        exit 1 ;;
    reload) MAINPID=$(cat "/tmp/$unit.pid") bash -c "$(setting ExecReload)" ;;
    stop) kill "$(cat "/tmp/$unit.pid")" ;;
esac
END
# Stands for the operator: what the comments of the example ask for.
cat > "$root/usr/local/bin/editor" <<'END'
#!/bin/sh
sed -i 's/192.0.2.1:4433/SERVER:4433/; s/^# metrics/metrics/' "$1"
END
chmod +x "$root/usr/local/sbin/systemctl" "$root/usr/local/bin/editor"
prelude="cd /root"
walk 6 < <(block docs/guide/operators.md '## Install' sh)
# Who takes a node's key is its owner; root has a copy.
key=/etc/starhop/domain.key
as_owner="runuser -u starhop -- starhop"
inside install -m 600 $key /root/copy.key
stays server "$as_owner serve /srv/films --key $key"
fetch() {
    at client "starhop get holiday.mkv --from $1:4433 --key copy.key"
    inside cmp /srv/films/holiday.mkv /root/holiday.mkv
    rm "$root/root/holiday.mkv"
}
fetch RELAY1
at relay1 "curl -fsS http://127.0.0.1:9464/metrics"
expect '^starhop_peer_bytes_total{.*side="upstream"'
# A change, and the line that the guide has for it.
at relay1 "echo 'log-level = \"debug\"' >> /etc/starhop/relay.toml; systemctl reload starhop-relay; sleep 0.5; cat /tmp/starhop-relay.log"
expect 'settings read again: log-level changed'
at relay1 "starhop status"
expect 'relay-4433: relay on'
at relay1 "$as_owner doctor SERVER:4433 --key $key"
expect 'answer of 10.9.1.2:4433: ok'
echo "test the_operators_guide_leads_from_nothing_to_a_relay_that_is_watched ... ok"

block docs/guide/operators.md '- **A configuration file**' toml > "$root/etc/starhop/starhop.toml"
stays relay2 "$(sed -n 's/.*# \(runuser .* relay --config .*\)/\1/p' "$root/etc/starhop/starhop.toml")"
fetch RELAY2
at relay2 "curl -fsS http://127.0.0.1:9464/metrics"
expect '^starhop_site_bytes_total'
cmp "$root/usr/share/starhop/prometheus-alerts.yml" "$tree/tools/prometheus-alerts.yml"
inside test -s /usr/share/starhop/grafana.json
# The hosts share /run.
at relay1 "systemctl stop starhop-relay; sleep 1"
at relay2 "$as_owner capture relay-4433 --for 1s --key $key -o /tmp/x.pcapng"
at relay2 "starhop support"
end_nodes
echo "test the_guides_example_of_a_configuration_is_that_of_a_relay_that_is_watched ... ok"
