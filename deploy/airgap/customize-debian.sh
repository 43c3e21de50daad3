#!/bin/sh
# Finishes the root of the Debian image, called by mmdebstrap: WORK ROOT. Adds the certificate authorities of
# WORK/authorities, and disables service starts on package installs, like the official image.
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
