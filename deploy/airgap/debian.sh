# shellcheck shell=bash
# debian:bookworm-slim from Debian packages: a minimal root built by mmdebstrap, with this machine's package mirror,
# proxy settings and certificate authorities, so that `apt-get install` works in image builds. Sourced by build.sh,
# which decides whether it is needed.

DEBIAN_CODENAME=bookworm

# The apt sources of the image: AOD_DEBIAN_MIRROR (a URL that ends before /dists), else those of this machine if it
# runs the same Debian, else Debian's own.
debian_sources() {
    local own=''
    if [ -z "${AOD_DEBIAN_MIRROR:-}" ]; then
        # shellcheck disable=SC2016 # apt fills these in
        own="$(apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
            awk -F'|' -v codename="$DEBIAN_CODENAME" '
                $3 == "main" && ($4 == "Debian" || $1 ~ /\/debian(-security)?\/?$/) &&
                ($2 == codename || $2 == codename "-updates" || $2 == codename "-security") {
                    print "deb", $1, $2, $3
                }' | sort -u)"
    fi
    if grep -q " $DEBIAN_CODENAME main" <<<"$own"; then
        printf '%s\n' "$own"
        return
    fi
    local mirror="${AOD_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    printf 'deb %s %s main\n' "$mirror" "$DEBIAN_CODENAME" "$mirror" "$DEBIAN_CODENAME-updates"
    printf 'deb %s %s main\n' "${mirror%/}-security" "$DEBIAN_CODENAME-security"
}

# The settings of this machine's apt for its mirror: proxies, certificates, disabled checks. Also from the environment,
# like apt.
debian_apt_settings() {
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::(http|https)::|^Acquire::(Check-Valid-Until|Check-Date|Retries) ' |
        grep -v '""' || true
    local scheme variable
    for scheme in http https; do
        variable="${scheme}_proxy"
        [ -z "${!variable:-}" ] || printf 'Acquire::%s::Proxy "%s";\n' "$scheme" "${!variable}"
    done
    printf 'Acquire::Languages "none";\nApt::AutoRemove::SuggestsImportant "false";\n'
}

# An image of empty directories. A container of it, with this machine's /usr and /etc mounted, runs this machine's
# mmdebstrap as root, also for a normal user in the docker group. One for each build, because another user of this
# Docker may build concurrently.
DEBIAN_HELPER_IMAGE="aod-airgap-helper:$$"

debian_helper_image() {
    local root=$1/helper directory
    mkdir -p "$root"/{usr,etc,var/tmp,tmp,root,proc,sys,dev,run,work,airgap}
    chmod 1777 "$root/tmp" "$root/var/tmp"
    for directory in bin sbin lib lib64; do
        ln -s "usr/$directory" "$root/$directory"
    done
    tar -C "$root" -c . | docker import - "$DEBIAN_HELPER_IMAGE" >/dev/null
}

# build_debian WORK: builds $DEBIAN_IMAGE in the empty directory WORK.
build_debian() {
    local work=$1
    has mmdebstrap || die "mmdebstrap is missing, and no image registry is reachable" "apt-get install mmdebstrap"
    debian_sources >"$work/sources.list"
    debian_apt_settings >"$work/apt.conf"
    collect_authorities "$work/authorities"
    debian_helper_image "$work"
    # tmpfs: unpacks the root in memory, several times faster than in the container's layers.
    docker run --rm --name "aod-airgap-$$" --network host --security-opt apparmor=unconfined \
        --tmpfs /tmp:exec,dev,mode=1777 \
        --volume /usr:/usr:ro --volume /etc:/etc:ro \
        --volume "$work:/work" --volume "$DEPLOY_DIR/airgap:/airgap:ro" \
        --env http_proxy --env https_proxy --env no_proxy --env HOME=/root \
        --env PATH=/usr/sbin:/usr/bin --env TMPDIR=/tmp --workdir /tmp \
        "$DEBIAN_HELPER_IMAGE" \
        mmdebstrap --quiet --mode=root --skip=chroot/mount --variant=minbase --include=ca-certificates \
        --aptopt=/work/apt.conf \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/groff/*' \
        --customize-hook='/airgap/customize-debian.sh /work "$1"' \
        "$DEBIAN_CODENAME" /work/root.tar /work/sources.list >"$work/mmdebstrap.log" 2>&1 || {
        tail -n 40 "$work/mmdebstrap.log" >&2
        docker image rm "$DEBIAN_HELPER_IMAGE" >/dev/null
        die "mmdebstrap failed" "if this machine does not run Debian, set AOD_DEBIAN_MIRROR"
    }
    docker import --change 'CMD ["bash"]' --change 'LABEL dev.aod.airgap=debian' \
        "$work/root.tar" "$DEBIAN_IMAGE" >/dev/null
    docker image rm "$DEBIAN_HELPER_IMAGE" >/dev/null
}
