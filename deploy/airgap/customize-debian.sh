#!/bin/sh
# Finishes the root of the debian image, called by mmdebstrap: WORK ROOT. Adds the certificate authorities
# of WORK/authorities to the image's own, and starts no service on package installs, as the official image.
set -eu
work=$1
root=$2

mkdir -p "$root/usr/local/share/ca-certificates"
find "$work/authorities" -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \;
chroot "$root" update-ca-certificates >/dev/null

printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
printf 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };\n' \
    >"$root/etc/apt/apt.conf.d/docker-clean"
printf 'force-unsafe-io\n' >"$root/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"
