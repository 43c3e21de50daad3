# shellcheck shell=bash
# python:3.11-slim from Debian's Python, which is of the same version: `python` and `pip` are on the PATH, and pip
# installs for the whole image, as in the official one, from the index that this machine's pip uses.
# To be sourced by build.sh.

# pip_settings: what this machine tells pip of its index and the way there, as a pip.conf on stdout. Later files win
# over earlier ones, and the environment over all, as pip has it. What names a path of this machine stays here.
pip_settings() {
    python3 - <<'PYTHON'
import configparser, os

HOME = os.path.expanduser("~")
FILES = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{HOME}/.pip/pip.conf", f"{HOME}/.config/pip/pip.conf"]
KEYS = ["index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"]

settings = {}
for path in [*FILES, os.environ.get("PIP_CONFIG_FILE", os.devnull)]:
    parser = configparser.RawConfigParser()
    parser.read(path)
    for section in ("global", "install"):
        settings.update(parser.items(section) if parser.has_section(section) else [])
proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
if proxy:
    settings["proxy"] = proxy
for key in KEYS:
    names = ["PIP_" + key.upper().replace("-", "_")] + (["PIP_DEFAULT_TIMEOUT"] if key == "timeout" else [])
    settings.update({key: os.environ[name] for name in names if os.environ.get(name)})

print("[global]\n# This image's own bundle, which has the authorities of the machine that made it.")
print("cert = /etc/ssl/certs/ca-certificates.crt")
for key in KEYS:
    values = [value for value in settings.get(key, "").split() if not value.startswith(("/", "file:"))]
    if values:
        # An indented line goes on with the value before it.
        print(f"{key} = " + "\n    ".join(values))
PYTHON
}

# build_python WORK
build_python() {
    local work=$1
    pip_settings >"$work/pip.conf"
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $DEBIAN_IMAGE
RUN apt-get update \\
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-pip python3-venv \\
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED \\
    && ln -s /usr/bin/python3 /usr/local/bin/python3 \\
    && ln -s /usr/bin/python3 /usr/local/bin/python
COPY pip.conf /etc/pip.conf
# The name promises the version, whatever the packages of this machine's mirror hold.
RUN python --version | grep -q '^Python ${PYTHON_VERSION}[.]' && pip --version
ENV LANG=C.UTF-8
CMD ["python3"]
LABEL dev.aod.airgap=python
DOCKERFILE
    docker_build_packages --tag "$PYTHON_IMAGE" "$work"
}
