//! Hints for failed TLS connections.

/// How to fix the TLS error in `text`, and on which host.
pub(crate) fn hint_of_refusal(text: &str) -> Option<&'static str> {
    let hints = [
        (
            "UnknownIssuer",
            "a certificate authority that you do not trust signed the certificate: set AOD_CERTIFICATE_AUTHORITY (or \
             --certificate-authority; for the broker --nats-ca) to the ca.crt of the cluster",
        ),
        (
            "certificate expired",
            "on the host of that server, renew its certificate with the same authority: `aod certs DIR`; check that the clocks \
             agree",
        ),
        (
            "not valid yet",
            "correct the clock of this host, or of the host that issued the certificate",
        ),
        (
            "not valid for name",
            "on the host of that server, issue a certificate for this name: `aod certs DIR --host NAME`; or use a name in \
             its certificate",
        ),
        (
            "InvalidContentType",
            "the server does not use TLS: use http:// for a gateway without --tls-certificate",
        ),
    ];
    hints
        .into_iter()
        .find(|(word, _)| text.contains(word))
        .map(|(_, hint)| hint)
}
