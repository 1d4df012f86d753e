# Sourced. A private copy of this system: an overlay over it in `$root`, below `$work`. Exit code 77 where none can be made.
ip link set lo up
mkdir -p "$work"
mount -t tmpfs tmpfs "$work"
mkdir "$work"/{upper,below,root}
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/below" overlay "$work/root" || exit 77
root=$work/root
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
chmod 1777 "$root/tmp"
inside() { chroot "$root" "$@"; }
