//! TLS as libpq's `sslmode` has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};
use x509_cert::time::Time;
use x509_cert::{Certificate, Version};

use super::environment::Error;

/// The values of `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Never TLS.
    Disable,
    /// TLS if the server refuses a connection without.
    Allow,
    /// TLS if the server has it.
    Prefer,
    /// TLS. The certificate is verified only if there is a file of root certificates.
    Require,
    /// TLS, with a certificate of a known authority.
    VerifyCa,
    /// TLS, with such a certificate for this host.
    VerifyFull,
}

impl Mode {
    /// Reads a value of `sslmode`; without one, it is `prefer`.
    pub fn parse(text: Option<&str>) -> Result<Self, Error> {
        Ok(match text.unwrap_or("prefer") {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            other => return Err(Error(format!("invalid sslmode value: \"{other}\""))),
        })
    }
}

/// Makes the configuration of TLS. `root_file` is `sslrootcert`, and its default lies in `home`.
pub fn configuration(
    mode: Mode,
    root_file: Option<&str>,
    home: Option<&Path>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let file = root_file
        .map(PathBuf::from)
        .or_else(|| home.map(|home| home.join(".postgresql/root.crt")));
    let file = file.filter(|file| root_file == Some("system") || file.exists());
    if root_file == Some("system") && mode != Mode::VerifyFull {
        return Err(Error("sslrootcert=system needs sslmode=verify-full".to_owned()));
    }
    let roots = match &file {
        Some(_) if root_file == Some("system") => Some((system_roots(), Vec::new())),
        Some(file) if mode >= Mode::Require => Some(roots_of(file)?),
        None if mode >= Mode::VerifyCa => {
            let name = root_file.unwrap_or("~/.postgresql/root.crt");
            return Err(Error(format!(
                "root certificate file \"{name}\" does not exist: give it as sslrootcert, or take sslmode=require"
            )));
        }
        _ => None,
    };
    let trust = roots.map(|(authorities, own)| {
        let is_empty = authorities.is_empty();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider.clone());
        let authority = (!is_empty).then(|| verifier.build()).transpose()?;
        Ok(Trust { authority, own })
    });
    let verifier = Verifier {
        trust: trust
            .transpose()
            .map_err(|error: VerifierBuilderError| Error(format!("root certificates: {error}")))?,
        checks_name: mode == Mode::VerifyFull,
        provider: provider.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error(format!("TLS: {error}")))?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Returns the authorities of a file, and the certificates that sign themselves.
fn roots_of(file: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error(format!("root certificate file \"{}\": {error}", file.display()))
    };
    let (mut authorities, mut own) = (RootCertStore::empty(), Vec::new());
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
        let certificate = certificate.map_err(|error| failed(&error))?;
        let parsed = Certificate::from_der(&certificate).map_err(|error| failed(&error))?;
        let of_itself = parsed.tbs_certificate.issuer == parsed.tbs_certificate.subject;
        if is_authority(&parsed) {
            authorities
                .add(certificate.clone())
                .map_err(|error| failed(&error))?;
        }
        if of_itself {
            own.push(certificate);
        }
    }
    if authorities.is_empty() && own.is_empty() {
        Err(failed(&"it has no certificate"))
    } else {
        Ok((authorities, own))
    }
}

/// Returns whether a certificate may sign others. Before version 3 none says that it may not.
fn is_authority(certificate: &Certificate) -> bool {
    let constraints = certificate.tbs_certificate.get::<BasicConstraints>();
    certificate.tbs_certificate.version != Version::V3
        || constraints.is_ok_and(|found| found.is_some_and(|(_, constraints)| constraints.ca))
}

/// Returns whether a certificate is valid at a time.
fn is_of_today(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    Certificate::from_der(certificate).is_ok_and(|certificate| {
        let validity = certificate.tbs_certificate.validity;
        let seconds = |time: Time| time.to_unix_duration().as_secs();
        (seconds(validity.not_before)..=seconds(validity.not_after)).contains(&now.as_secs())
    })
}

/// Returns whether a certificate that lists no names has this one as its common name, as libpq compares them:
/// `*.` stands for one part of a name.
fn has_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return false;
    };
    let certificate = certificate.tbs_certificate;
    if !matches!(certificate.get::<SubjectAltName>(), Ok(None)) {
        return false;
    }
    let parts = certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let common = parts
        .filter(|part| part.oid == COMMON_NAME)
        .map(|part| part.value.value());
    let name = name.to_str();
    { common }
        .next()
        .and_then(|common| std::str::from_utf8(common).ok())
        .is_some_and(|common| match (common.strip_prefix("*."), name.split_once('.')) {
            (Some(common), Some((_, rest))) => common.eq_ignore_ascii_case(rest),
            _ => common.eq_ignore_ascii_case(&name),
        })
}

/// Whose certificates are accepted.
#[derive(Debug)]
struct Trust {
    /// Those that these have signed; nobody if there are none.
    authority: Option<Arc<WebPkiServerVerifier>>,
    /// A server's that is one of these, which sign themselves.
    own: Vec<CertificateDer<'static>>,
}

/// Verifies as much of the server's certificate as the mode wants. The server always proves that it has
/// the key.
#[derive(Debug)]
struct Verifier {
    /// Without it, any certificate is accepted.
    trust: Option<Trust>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trust) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        // rustls takes no authority for a server, and OpenSSL does.
        let found = if trust.own.contains(&end_entity.clone().into_owned()) && is_of_today(end_entity, now) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)
        } else if let Some(authority) = &trust.authority {
            let verified =
                authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
            verified.map(drop)
        } else {
            Err(CertificateError::UnknownIssuer.into())
        };
        match found {
            // The name is compared last, when the chain has been verified.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name || has_common_name(end_entity, server_name) => {
                Ok(ServerCertVerified::assertion())
            }
            found => found.map(|()| ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
