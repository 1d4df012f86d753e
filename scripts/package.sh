#!/usr/bin/env bash
# Builds a Debian package and an OCI image layout from a built binary. Needs no network.
#   scripts/package.sh BINARY DIRECTORY
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
arch=$(dpkg --print-architecture)
# Files carry the time of the commit, so that equal sources give equal packages.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/Cargo.toml")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/deb

put() { install -D -m "$1" "$2" "$stage/$3"; }

strip -o "$work/starhop" "$binary" 2>/dev/null || cp "$binary" "$work/starhop"
put 0755 "$work/starhop" usr/bin/starhop
"$binary" generate "$work/generated"
for page in "$work"/generated/man/*.1; do gzip -9n "$page"; put 0644 "$page.gz" "usr/share/man/man1/$(basename "$page").gz"; done
put 0644 "$work/generated/starhop.bash" usr/share/bash-completion/completions/starhop
put 0644 "$work/generated/_starhop" usr/share/zsh/vendor-completions/_starhop
put 0644 "$work/generated/starhop.fish" usr/share/fish/vendor_completions.d/starhop.fish
for unit in "$root"/packaging/systemd/*.service; do put 0644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"; done
for config in "$root"/packaging/etc/*.toml; do put 0640 "$config" "etc/starhop/$(basename "$config")"; done
put 0640 "$root/docs/guide/gateway.toml" etc/starhop/gateway.toml
put 0644 "$root/packaging/credentials.conf" usr/share/starhop/credentials.conf
put 0644 "$root/packaging/sysusers.conf" usr/lib/sysusers.d/starhop.conf
put 0644 "$root/packaging/sysctl.conf" usr/lib/sysctl.d/60-starhop.conf
for tool in "$root"/tools/*; do put 0644 "$tool" "usr/share/starhop/$(basename "$tool")"; done
for text in README.md CHANGELOG.md docs/guide/operators.md docs/guide/gateway.md docs/SECURITY.md LICENSE-MIT LICENSE-APACHE; do
    put 0644 "$root/$text" "usr/share/doc/starhop/$(basename "$text")"
done
cat > "$work/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
License: MIT or Apache-2.0
END
put 0644 "$work/copyright" usr/share/doc/starhop/copyright

# The packages that own the libraries which the binary is linked with.
libraries=$(ldd "$binary" | awk '$3 ~ /^\// {print $3}')
depends=$(for library in $libraries; do
    dpkg -S "$(realpath "$library")" 2>/dev/null || dpkg -S "*/$(basename "$library")" 2>/dev/null
done | cut -d: -f1 | sort -u | paste -sd, | sed 's/,/, /g')
mkdir -p "$stage/DEBIAN"
for script in postinst prerm postrm; do install -m 0755 "$root/packaging/$script" "$stage/DEBIAN/$script"; done
(cd "$stage" && find etc -type f | sort | sed 's,^,/,') > "$stage/DEBIAN/conffiles"
cat > "$stage/DEBIAN/control" <<END
Package: starhop
Version: $version
Architecture: $arch
Maintainer: The Starhop authors <starhop@localhost>
Depends: $depends
Recommends: nftables, iproute2
Section: net
Priority: optional
Installed-Size: $(du -sk "$stage" | cut -f1)
Description: data over satellite paths, hop by hop
 Relays repair the losses of their own hop from a cache, hold links full with
 about a millisecond of queue, and give the same bytes to the next who asks.
END
find "$stage" -exec touch -h -d "@$epoch" {} +
deb=$out/starhop_${version}_$arch.deb
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -Zxz --build "$stage" "$deb" >/dev/null
echo "$deb"

# The image: what the package installs, the libraries that it needs, and its user. Nothing else is in it.
image=$work/image
mkdir -p "$image" "$image/tmp"
dpkg-deb -x "$deb" "$image"
rm -rf "$image/usr/lib" "$image/usr/share/man" "$image/usr/share/doc" "$image"/usr/share/{bash-completion,zsh,fish}
for library in $(ldd "$binary" | grep -o '/[^ ]*'); do install -D -m 0755 "$(realpath "$library")" "$image/$library"; done
printf 'root:x:0:0:root:/root:/usr/sbin/nologin\nstarhop:x:990:990:Starhop:/nonexistent:/usr/sbin/nologin\n' > "$image/etc/passwd"
printf 'root:x:0:\nstarhop:x:990:\n' > "$image/etc/group"
layout=$out/starhop-$version-oci
rm -rf "$layout"
mkdir -p "$layout/blobs/sha256"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$image" -cf "$work/layer.tar" .
layer_id=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip -9n "$work/layer.tar"

# blob FILE: moves it to its place and prints its digest and size.
blob() {
    local digest
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    local size
    size=$(stat -c %s "$1")
    mv "$1" "$layout/blobs/sha256/$digest"
    echo "\"digest\":\"sha256:$digest\",\"size\":$size"
}
layer=$(blob "$work/layer.tar.gz")
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
printf '{"created":"%s","architecture":"%s","os":"linux","config":{"User":"starhop","Entrypoint":["/usr/bin/starhop"],"Cmd":["help"],"ExposedPorts":{"4433/udp":{}}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$created" "$arch" "$layer_id" > "$work/config.json"
config=$(blob "$work/config.json")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",%s}]}' \
    "$config" "$layer" > "$work/manifest.json"
manifest=$(blob "$work/manifest.json")
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
    "$manifest" "$version" > "$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
echo "$layout"
