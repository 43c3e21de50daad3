# shellcheck shell=bash
# The certificate authorities that a company adds to its machines: detected, or given with --ca.
# Sourced by build.sh.

# collect_authorities DIRECTORY: writes one file (NAME.crt) for each certificate of $CA_FILE, if set, and for each that
# this machine trusts in addition to those of its distribution.
collect_authorities() {
    local directory=$1
    mkdir -p "$directory"
    python3 - "$directory" "${CA_FILE:-}" <<'PYTHON'
import glob, hashlib, os, re, sys

PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)

def certificates(paths):
    """Every certificate of the files, as {body without white space: text}."""
    found = {}
    for path in paths:
        try:
            text = open(path, "rb").read()
        except OSError:
            continue
        for match in PEM.findall(text):
            found[b"".join(match.split())] = match
    return found

directory, given = sys.argv[1:]
ours = certificates(glob.glob("/usr/share/ca-certificates/**/*.crt", recursive=True))
bundles = ["/etc/ssl/certs/ca-certificates.crt", os.environ.get("SSL_CERT_FILE", "")]
added = certificates(glob.glob("/usr/local/share/ca-certificates/**/*.crt", recursive=True))
if ours:
    added.update({k: v for k, v in certificates(bundles).items() if k not in ours})
if given:
    added.update(certificates([given]))
for body, text in added.items():
    name = "host-" + hashlib.sha256(body).hexdigest()[:16] + ".crt"
    with open(os.path.join(directory, name), "wb") as out:
        out.write(text + b"\n")
PYTHON
}
