//! Encrypts connections, and proves to a client that the far end is the right one.
//!
//! The far end makes a certificate and the client pins it. Over ssh, the certificate itself comes over the control
//! connection; for a server, the token has its fingerprint. Only TLS 1.3 is spoken (RFC 8446), with a key exchange that resists
//! quantum computers. After the handshake, data streams continue with records of their own (`records.rs`).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};

use super::records;
use crate::error::TransferError;

/// BLAKE3 of a certificate.
pub type Fingerprint = [u8; 32];

/// A certificate and its private key.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// The private key, PKCS#8 in DER.
    pub key: Vec<u8>,
}

/// What TLS found wrong with the other end, if that is the error. Bytes that are no TLS at all (`InvalidMessage`) say nothing
/// about who it is.
pub(crate) fn objection(error: &std::io::Error) -> Option<&rustls::Error> {
    let told = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    (!matches!(told, rustls::Error::InvalidMessage(_))).then_some(told)
}

fn tls(what: &str, error: impl std::fmt::Display) -> TransferError {
    TransferError::Unreachable(format!("{what}: {error}"))
}

impl Identity {
    /// Makes a new key and a certificate that it has signed itself.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> Result<Identity, TransferError> {
        let made = rcgen::generate_simple_self_signed(vec!["fullpipe".to_owned()])
            .map_err(|e| tls("making a certificate", e))?;
        Ok(Identity { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() })
    }

    /// The fingerprint of the certificate, which clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        *blake3::hash(&self.certificate).as_bytes()
    }

    /// Makes the TLS configuration of the end that accepts connections.
    ///
    /// # Errors
    /// The key does not belong to the certificate.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TransferError> {
        let key = PrivateKeyDer::try_from(self.key.clone()).map_err(|e| tls("reading the key", e))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| tls("setting TLS up", e))?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)
            .map_err(|e| tls("setting TLS up", e))?;
        // No session tickets: on a data stream the sender would have to read them, and it reads nothing.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = records::protocols();
        Ok(Arc::new(config))
    }
}

/// Chooses the algorithms of TLS, from AWS-LC. AES-128-GCM comes first: with AES instructions it is the fastest of TLS's
/// ciphers, and ssh trusts it too. Keys are exchanged by X25519 with ML-KEM-768 (X25519MLKEM768), so that a recorded
/// connection cannot be decrypted by a later quantum computer, or by X25519 alone if the far end has nothing better.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
    let mut provider = default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519];
    Arc::new(provider)
}

/// Accepts exactly one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // blake3 compares hashes in constant time.
        if blake3::hash(end_entity) == blake3::Hash::from_bytes(self.fingerprint) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Makes the TLS configuration of a client's control connection. It accepts only the certificate with this fingerprint.
///
/// # Errors
/// TLS cannot be set up.
pub fn client(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, TransferError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| tls("setting TLS up", e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint, algorithms }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Makes the TLS configuration of a client's data streams, as [`client`] does. After the handshake they use faster records
/// if both ends can.
///
/// # Errors
/// TLS cannot be set up.
pub fn data_client(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, TransferError> {
    let mut config = Arc::unwrap_or_clone(client(fingerprint)?);
    config.alpn_protocols = records::protocols();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, Connection, ServerConnection};

    use super::*;

    #[test]
    fn keys_are_exchanged_so_that_a_quantum_computer_does_not_help() {
        let identity = Identity::new().unwrap();
        let name = ServerName::try_from("fullpipe").unwrap();
        let mut client = ClientConnection::new(client(identity.fingerprint()).unwrap(), name).unwrap();
        let mut server = ServerConnection::new(identity.server().unwrap()).unwrap();
        let mut flights = 0;
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
            }
            server.process_new_packets().unwrap();
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            rest = &wire[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
            }
            client.process_new_packets().unwrap();
            flights += 1;
        }
        for connection in [Connection::from(client), Connection::from(server)] {
            let group = connection.negotiated_key_exchange_group().unwrap().name();
            assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
            let suite = connection.negotiated_cipher_suite().unwrap().suite();
            assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        }
        assert_eq!(flights, 2, "no round trip more than TLS 1.3 takes");
    }
}
