//! A target of the SQL trace: which sessions are traced because somebody asked for it in another session.

use std::net::IpAddr;

/// The most targets at a time.
pub const MAX_TARGETS: usize = 32;
/// The bytes of an application's name, with a zero byte at the end.
pub const NAME_BYTES: usize = 64;

/// The name of an application, in the database's encoding. Zero bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Name {
    is_known: bool,
    length: u8,
    bytes: [u8; NAME_BYTES],
}

impl Name {
    /// No name.
    pub const NONE: Name = Name {
        is_known: false,
        length: 0,
        bytes: [0; NAME_BYTES],
    };

    /// Returns a name. `None` if it is longer than an application's name may be.
    pub fn new(name: &[u8]) -> Option<Name> {
        let mut bytes = [0; NAME_BYTES];
        let length = u8::try_from(name.len())
            .ok()
            .filter(|_| name.len() < NAME_BYTES)?;
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Name {
            is_known: true,
            length,
            bytes,
        })
    }

    /// Returns the name, if there is one.
    pub fn get(&self) -> Option<&[u8]> {
        self.bytes
            .get(..usize::from(self.length))
            .filter(|_| self.is_known)
    }
}

/// A network, or a single address. Zero bytes are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Network {
    /// The bytes of the address that count: 4 or 16; 0 if there is no network.
    length: u8,
    /// How many bits of them must be the same.
    bits: u8,
    bytes: [u8; 16],
}

impl Network {
    /// No network.
    pub const NONE: Network = Network {
        length: 0,
        bits: 0,
        bytes: [0; 16],
    };

    /// Reads a network as PostgreSQL prints it: `10.0.0.0/8`, or `10.1.2.3` for a single address.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let mut bytes = [0; 16];
        let length = octets(address.parse().ok()?, &mut bytes);
        let bits = bits.unwrap_or(length * 8);
        (bits <= length * 8).then_some(Network { length, bits, bytes })
    }

    /// Returns whether there is a network.
    pub fn is_known(&self) -> bool {
        self.length > 0
    }

    /// Returns whether an address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mut bytes = [0; 16];
        octets(address, &mut bytes) == self.length && high(&bytes, self.bits) == high(&self.bytes, self.bits)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let address = match self.bytes {
            [a, b, c, d, ..] if self.length == 4 => IpAddr::from([a, b, c, d]),
            bytes => IpAddr::from(bytes),
        };
        write!(formatter, "{address}/{}", self.bits)
    }
}

/// Writes the bytes of an address. Returns how many there are.
fn octets(address: IpAddr, bytes: &mut [u8; 16]) -> u8 {
    match address {
        IpAddr::V4(address) => {
            for (to, from) in bytes.iter_mut().zip(address.octets()) {
                *to = from;
            }
            4
        }
        IpAddr::V6(address) => {
            *bytes = address.octets();
            16
        }
    }
}

/// Returns the first bits of an address.
fn high(bytes: &[u8; 16], bits: u8) -> u128 {
    let dropped = 128_u32.saturating_sub(u32::from(bits));
    u128::from_be_bytes(*bytes).checked_shr(dropped).unwrap_or(0)
}

/// What is traced, and until when. A condition that is 0 (or none) holds for every session. Zero bytes are a
/// place without a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Target {
    /// 0 if the place is free.
    pub number: i32,
    /// Condition: the process of the session.
    pub pid: i32,
    /// When the session with this pid began.
    pub started: i64,
    /// Condition: the OID of the session's user, or of the one that SET ROLE has chosen.
    pub role: u32,
    /// Condition: the OID of the database.
    pub database: u32,
    /// Condition: the queryid of the statement.
    pub queryid: i64,
    /// Condition: where the client is.
    pub network: Network,
    /// Condition: the name of the application.
    pub application_name: Name,
    /// Whether each wait is listed.
    pub waits: bool,
    /// Whether the values of parameters are listed.
    pub binds: bool,
    /// The OID of the role that has set it.
    pub set_by: u32,
    /// When it was set, as PostgreSQL's timestamp.
    pub since: i64,
    /// When it expires.
    pub expires: i64,
}

/// What is known of a session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Its process.
    pub pid: i32,
    /// When it began.
    pub started: i64,
    /// The OID of its database.
    pub database: u32,
    /// The address of its client; `None` for a session over a Unix socket.
    pub address: Option<IpAddr>,
    /// These may change.
    pub changing: Changing,
}

/// What a session may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changing {
    /// The user of the session, and the one that SET ROLE has chosen.
    pub roles: [u32; 2],
    /// The name of its application.
    pub application_name: Name,
}

/// Whether a target means a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does not, as long as the session lives.
    Never,
    /// It does not, unless the session changes its role or its application's name.
    NotNow,
    /// It does.
    Now,
}

impl Target {
    /// A place without a target.
    pub const FREE: Target = Target {
        number: 0,
        pid: 0,
        started: 0,
        role: 0,
        database: 0,
        queryid: 0,
        network: Network::NONE,
        application_name: Name::NONE,
        waits: false,
        binds: false,
        set_by: 0,
        since: 0,
        expires: 0,
    };

    /// Returns whether there is a target, at this time.
    pub fn is_set(&self, now: i64) -> bool {
        self.number != 0 && now < self.expires
    }

    /// Returns whether it has a condition.
    pub fn has_condition(&self) -> bool {
        self.pid != 0
            || self.role != 0
            || self.database != 0
            || self.queryid != 0
            || self.network.is_known()
            || self.application_name.get().is_some()
    }

    /// Returns whether it depends on what a session may change.
    pub fn may_change(&self) -> bool {
        self.role != 0 || self.application_name.get().is_some()
    }

    /// Returns whether it means a session. The queryid is no condition for that.
    pub fn fit(&self, session: &Session) -> Fit {
        let is_process = self.pid == 0 || (self.pid, self.started) == (session.pid, session.started);
        let is_database = self.database == 0 || self.database == session.database;
        let is_client = !self.network.is_known()
            || session
                .address
                .is_some_and(|address| self.network.contains(address));
        if !(is_process && is_database && is_client) {
            return Fit::Never;
        }
        let changing = &session.changing;
        let is_role = self.role == 0 || changing.roles.contains(&self.role);
        let is_application = self.application_name.get().is_none()
            || self.application_name.get() == changing.application_name.get();
        match is_role && is_application {
            true => Fit::Now,
            false => Fit::NotNow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            pid: 7,
            started: 100,
            database: 5,
            address: "10.1.2.3".parse().ok(),
            changing: Changing {
                roles: [10, 11],
                application_name: Name::new(b"app").expect("short"),
            },
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.3/31", "10.1.2.2", "10.1.2.4"),
            ("0.0.0.0/0", "1.2.3.4", "::"),
            ("fe80::/10", "fe80::1", "fec0::1"),
            ("::1", "::1", "0.0.0.1"),
            ("::/0", "fe80::1", "0.0.0.0"),
        ] {
            let found = Network::parse(network).expect(network);
            assert!(found.contains(inside.parse().expect("an address")), "{network}");
            assert!(!found.contains(outside.parse().expect("an address")), "{network}");
            let whole = Network::parse(&found.to_string());
            assert_eq!(whole, Some(found));
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "a",
            "1.2.3.4/",
            "1.2.3.4/-1",
            "1.2.3.4/300",
        ] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
        assert!(!Network::NONE.is_known());
    }

    #[test]
    fn all_conditions_must_hold() {
        let session = session();
        let mut target = Target {
            number: 1,
            expires: 10,
            ..Target::FREE
        };
        assert!(!target.has_condition() && !target.may_change());
        assert_eq!(target.fit(&session), Fit::Now);
        target.pid = 7;
        assert_eq!(
            target.fit(&session),
            Fit::Never,
            "an earlier process with this pid"
        );
        target.started = 100;
        target.database = 5;
        target.network = Network::parse("10.0.0.0/8").expect("a network");
        assert_eq!(target.fit(&session), Fit::Now);
        target.role = 11;
        target.application_name = Name::new(b"app").expect("short");
        assert!(target.has_condition() && target.may_change());
        assert_eq!(target.fit(&session), Fit::Now);
        target.role = 12;
        assert_eq!(target.fit(&session), Fit::NotNow);
        target.role = 10;
        target.application_name = Name::new(b"").expect("short");
        assert_eq!(target.fit(&session), Fit::NotNow);
        target.database = 6;
        assert_eq!(target.fit(&session), Fit::Never);
        target.database = 0;
        let local = Session {
            address: None,
            ..session
        };
        assert_eq!(target.fit(&local), Fit::Never);
        assert!(target.is_set(9) && !target.is_set(10) && !Target::FREE.is_set(-1));
    }

    #[test]
    fn a_name_has_a_limit() {
        assert_eq!(
            Name::new(&[b'x'; 63]).and_then(|name| name.get().map(<[u8]>::len)),
            Some(63)
        );
        assert_eq!(Name::new(&[b'x'; 64]), None);
        assert_eq!(Name::new(b"").as_ref().and_then(Name::get), Some(&b""[..]));
        assert_eq!(Name::NONE.get(), None);
    }
}
