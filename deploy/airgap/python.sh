# shellcheck shell=bash
# python:3.11-slim from Debian's Python of the same version, with `python` and `pip` on the PATH. As in the official
# image, pip installs for the whole image, from the index of this machine's pip. Sourced by build.sh.

# pip_settings: prints this machine's pip settings for its index and connection as a pip.conf. As in pip, later files
# override earlier ones, and the environment overrides all. Omits paths of this machine.
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

print("[global]\n# This image's own bundle, with the authorities of the machine that built it.")
print("cert = /etc/ssl/certs/ca-certificates.crt")
for key in KEYS:
    values = [value for value in settings.get(key, "").split() if not value.startswith(("/", "file:"))]
    if values:
        # An indented line continues the value before it.
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
# Guarantees the version in the image's name, whatever this machine's mirror contains.
RUN python --version | grep -q '^Python ${PYTHON_VERSION}[.]' && pip --version
ENV LANG=C.UTF-8
CMD ["python3"]
LABEL dev.aod.airgap=python
DOCKERFILE
    docker_build_packages --tag "$PYTHON_IMAGE" "$work"
}
