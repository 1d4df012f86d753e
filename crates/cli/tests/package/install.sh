#!/usr/bin/env bash
# install.sh PACKAGES WORK: installs the package into an overlay over this system and runs its units' commands there.
# Exit code 77 where no overlay can be made.
set -euo pipefail
packages=$1 work=$2/overlay
. "$(dirname "$0")/overlay.sh"

dpkg --root="$root" --force-depends -i "$packages"/starhop_*.deb >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; exit 1; }
inside getent passwd starhop >/dev/null
[ "$(inside stat -c '%U:%G %a' /etc/starhop)" = "root:starhop 750" ]
inside starhop --version >/dev/null
for page in starhop starhop-relay starhop-key-new; do inside test -s "/usr/share/man/man1/$page.1.gz"; done
for file in bash-completion/completions/starhop zsh/vendor-completions/_starhop fish/vendor_completions.d/starhop.fish; do
    grep -q relay "$root/usr/share/$file"
done
echo "test the_package_installs_with_its_user_pages_and_completions ... ok"

inside starhop key new /etc/starhop/domain.key >/dev/null
inside chown starhop:starhop /etc/starhop/domain.key
for verb in fec xcp-router; do
    inside setpriv --reuid starhop --regid starhop --init-groups starhop check "/etc/starhop/$verb.toml"
done
echo "test the_examples_of_the_other_units_are_right ... ok"
inside mkdir -p /srv/starhop /run/starhop
inside chown starhop:starhop /run/starhop
echo "from the package" > "$root/srv/starhop/file"
# Two nodes on one host need two ports.
sed -i 's/4433"/4434"/; s/192.0.2.1:4434/127.0.0.1:4433/' "$root/etc/starhop/relay.toml"

# setting UNIT NAME: what a unit says.
setting() { sed -n "s/^$2=//p" "$root/usr/lib/systemd/system/$1.service"; }

# start UNIT: runs its ExecStartPre and ExecStart as its user, as systemd does, and waits until it says READY=1.
start() {
    local unit=$1 notify=/run/$1.notify said=$work/$1.said
    inside setpriv --reuid starhop --regid starhop --init-groups $(setting "$unit" ExecStartPre)
    python3 - "$root$notify" "$said" <<'END' &
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
with open(sys.argv[2], "w") as out:
    while True:
        out.write(listener.recv(4096).decode() + "\n")
        out.flush()
END
    listeners+=($!)
    while ! [ -S "$root$notify" ]; do sleep 0.05; done
    # Not by the function: the process that is started is the one to be ended.
    chroot "$root" env NOTIFY_SOCKET="$notify" WATCHDOG_USEC=400000 RUNTIME_DIRECTORY=/run/starhop \
        setpriv --reuid starhop --regid starhop --init-groups --bounding-set=-all --no-new-privs \
        $(setting "$unit" ExecStart) >"$work/$unit.log" 2>&1 &
    nodes+=($!)
    for _ in $(seq 200); do ! grep -q READY=1 "$said" || return 0; sleep 0.05; done
    echo "$unit never was ready"; cat "$work/$unit.log"; exit 1
}
listeners=() nodes=()
trap 'kill "${nodes[@]}" "${listeners[@]}" 2>/dev/null || true' EXIT
start starhop-serve
start starhop-relay
sleep 1
[ "$(grep -c WATCHDOG=1 "$work/starhop-relay.said")" -ge 3 ] || { echo "no signs of life"; cat "$work/starhop-relay.said"; exit 1; }
echo "test the_units_commands_become_ready_and_show_signs_of_life ... ok"

inside setpriv --reuid starhop --regid starhop --init-groups \
    env STARHOP_KEY=/etc/starhop/domain.key starhop get file --from 127.0.0.1:4434 --output /tmp/got >"$work/get.log" 2>&1 || { cat "$work/get.log"; exit 1; }
cmp "$root/srv/starhop/file" "$root/tmp/got"
inside env RUNTIME_DIRECTORY=/run/starhop starhop status > "$work/status"
grep -q "relay-4434: relay on" "$work/status" && grep -q "serve-4433: serve on" "$work/status"
kill "${nodes[@]}"
for node in "${nodes[@]}"; do wait "$node"; done
grep -q STOPPING=1 "$work/starhop-relay.said"
echo "test a_file_goes_from_the_packages_server_over_its_relay_and_status_shows_both ... ok"

# A node whose key systemd hands over: the file is root's, and the configuration names none.
credentials=/run/credentials
inside mkdir -m 700 $credentials
inside cp /etc/starhop/domain.key $credentials/starhop.key
inside chown -R starhop:starhop $credentials
inside chmod 440 $credentials/starhop.key
inside chown root:root /etc/starhop/domain.key
sed -i '/^key/d' "$root/etc/starhop/serve.toml"
as_starhop() { inside setpriv --reuid starhop --regid starhop --init-groups "$@"; }
as_starhop env CREDENTIALS_DIRECTORY=$credentials starhop check /etc/starhop/serve.toml
! as_starhop starhop check /etc/starhop/serve.toml 2>/dev/null
! as_starhop starhop check /etc/starhop/relay.toml 2>/dev/null
echo "test a_node_takes_its_key_from_systemd ... ok"

# The gateway's example, with the package's key alone.
sed -i '/^end_key/d; /^key/d' "$root/etc/starhop/gateway.toml"
as_starhop env CREDENTIALS_DIRECTORY=$credentials $(setting starhop-gateway ExecStartPre) | grep -q tproxy
echo "test the_gateways_unit_checks_its_configuration ... ok"

# The image holds all that the program needs, and nothing of this system.
layout=$(echo "$packages"/starhop-*-oci)
layer=$(python3 - "$layout" <<'END'
import hashlib, json, sys
layout = sys.argv[1]
def blob(descriptor):
    path = f"{layout}/blobs/" + descriptor["digest"].replace(":", "/")
    data = open(path, "rb").read()
    assert len(data) == descriptor["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"]
    return path
manifest = json.load(open(blob(json.load(open(f"{layout}/index.json"))["manifests"][0])))
config = json.load(open(blob(manifest["config"])))
assert config["config"]["Entrypoint"] == ["/usr/bin/starhop"] and config["config"]["User"] == "starhop"
print(blob(manifest["layers"][0]))
END
)
mkdir "$work/image"
tar -xzf "$layer" -C "$work/image"
chroot "$work/image" /usr/bin/starhop --version >/dev/null
echo "test the_image_is_whole_and_its_program_runs_without_this_system ... ok"
