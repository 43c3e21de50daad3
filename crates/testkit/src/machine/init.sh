#!/bin/busybox sh
# The first program of the emulated machine: network, disk, nats-server. If a step fails the machine goes off,
# and what it printed is shown.
set -e
# The kernel's own list of programs is needed before busybox can name its parts.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin
trap 'poweroff -f' EXIT

for module in virtio_pci virtio_blk virtio_net ext4; do
    # What is built in is no module.
    modprobe "$module" || true
done
ip link set lo up
# The address that the emulator forwards to.
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
mount -t ext4 /dev/vda /data
/nats-server -c /etc/nats.conf
