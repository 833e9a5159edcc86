//! The hosts at the two ends of an emulated path: what their kernels grant a socket, and who runs the programs. The testbed
//! sets both in its guest (`host_limits.rs` and `programs.rs` there).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::path_error::PathError;
use crate::units::Size;

/// The keys of a host, as errors list them.
const KEYS: &str = "tcp_rmem, tcp_wmem, tcp_mem, rmem_max, wmem_max, qdisc, initcwnd, ccs, user";
/// `net.core.rmem_max` and `wmem_max` as kernels come, bytes (`SK_RMEM_MAX`, include/net/sock.h).
const STOCK_MAX: u32 = 212_992;
/// Largest value of `rmem_max` and `wmem_max`, bytes.
const LARGEST_MAX: u32 = i32::MAX as u32;
/// Smallest buffer that Linux gives a socket, bytes (`SOCK_MIN_SNDBUF`, include/net/sock.h).
const LEAST: u32 = 4608;

/// Who runs the programs of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum User {
    /// Root, as in the guest by default.
    Root,
    /// An ordinary user, without privileges.
    User,
}

/// The queue between a host and its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostQueue {
    /// Packets leave as they come.
    Fifo,
    /// fq: each stream's packets leave at its pacing rate (`tc-fq(8)`).
    Fq,
}

/// A limit of autotuned buffers, bytes: least, first and most (`tcp_rmem`, `tcp_wmem`).
pub type Autotuning = [u32; 3];

/// A host at an end of an emulated path.
///
/// Its text is a base, and what differs from it: `stock`, `tuned`, `stock+rmem_max:16777216+user:user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabHost {
    base: Base,
    /// `net.ipv4.tcp_rmem`, bytes.
    pub tcp_rmem: Autotuning,
    /// `net.ipv4.tcp_wmem`, bytes.
    pub tcp_wmem: Autotuning,
    /// `net.ipv4.tcp_mem`, pages, of all sockets together: no pressure, pressure, and most; `None` for no limit.
    pub tcp_mem: Option<[u32; 3]>,
    /// `net.core.rmem_max`, bytes: the largest receive buffer that a program may ask for.
    pub rmem_max: u32,
    /// `net.core.wmem_max`, bytes.
    pub wmem_max: u32,
    /// The queue between the host and its link.
    pub qdisc: HostQueue,
    /// Initial congestion window of the route, segments; `None` for the kernel's own (10, RFC 6928).
    pub initcwnd: Option<u32>,
    /// Congestion controls that an ordinary user may take (`net.ipv4.tcp_allowed_congestion_control`); empty for the
    /// kernel's own choice.
    pub ccs: Vec<String>,
    /// Who runs the programs.
    pub user: User,
}

/// A host from which others differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Base {
    /// Programs may ask for any buffer.
    #[default]
    Tuned,
    /// The limits that a distribution comes with.
    Stock,
}

impl Base {
    fn name(self) -> &'static str {
        match self {
            Base::Tuned => "tuned",
            Base::Stock => "stock",
        }
    }

    fn host(self) -> LabHost {
        let most = match self {
            Base::Tuned => LARGEST_MAX,
            Base::Stock => STOCK_MAX,
        };
        LabHost {
            base: self,
            // A kernel's own, which would else depend on the guest's memory (net/ipv4/tcp.c, `tcp_init`).
            tcp_rmem: [4096, 131_072, 6 << 20],
            tcp_wmem: [4096, 16_384, 4 << 20],
            tcp_mem: None,
            rmem_max: most,
            wmem_max: most,
            qdisc: HostQueue::Fifo,
            initcwnd: None,
            ccs: Vec::new(),
            user: User::Root,
        }
    }
}

impl Default for LabHost {
    fn default() -> LabHost {
        Base::Tuned.host()
    }
}

impl LabHost {
    /// Whether this is the default host.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == LabHost::default()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), PathError> {
        let bad = |why: String| PathError::Value { key: "host", why };
        let bytes = |text: &str| {
            let bytes = text.parse::<u64>().ok().or_else(|| text.parse().ok().map(|Size(bytes)| bytes));
            bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
        };
        let size = || {
            let no_size = || bad(format!("{key}: '{value}' is not a number of bytes, such as 16777216 or 16MiB"));
            let size = bytes(value).ok_or_else(no_size)?;
            let too = if size < LEAST { "little" } else { "much" };
            if (LEAST..=LARGEST_MAX).contains(&size) {
                Ok(size)
            } else {
                Err(bad(format!("{key}: {value} is too {too}; kernels take {LEAST} to {LARGEST_MAX} bytes")))
            }
        };
        let separators = |c: char| c == '/' || c.is_whitespace();
        let parts = || value.split(separators).filter(|part| !part.is_empty());
        let three = || {
            let example = "write least, first and most, as in 4096/131072/6291456";
            let wrong = || bad(format!("{key}: '{value}' is not three numbers of bytes; {example}"));
            let all: Option<Vec<u32>> = parts().map(bytes).collect();
            let three: [u32; 3] = all.ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
            let [least, first, most] = three;
            if least == 0 || least > first || first > most || most > LARGEST_MAX {
                return Err(bad(format!("{key}: '{value}' does not increase up to {LARGEST_MAX}; {example}")));
            }
            Ok(three)
        };
        match key {
            "tcp_rmem" => self.tcp_rmem = three()?,
            "tcp_wmem" => self.tcp_wmem = three()?,
            "tcp_mem" => {
                let all: Result<Vec<u32>, _> = parts().map(str::parse).collect();
                let three: Option<[u32; 3]> = all.ok().and_then(|all| all.try_into().ok());
                let rises = |[low, pressure, most]: &[u32; 3]| (1..=*pressure).contains(low) && pressure <= most;
                let wrong =
                    || bad(format!("tcp_mem: '{value}' is not three rising numbers of pages, such as 1024/2048/4096"));
                self.tcp_mem = Some(three.filter(rises).ok_or_else(wrong)?);
            }
            "rmem_max" => self.rmem_max = size()?,
            "wmem_max" => self.wmem_max = size()?,
            "qdisc" => {
                self.qdisc = match value {
                    "fifo" => HostQueue::Fifo,
                    "fq" => HostQueue::Fq,
                    _ => return Err(bad(format!("qdisc: '{value}' is neither fifo nor fq"))),
                };
            }
            "initcwnd" => {
                let segments = value.parse().ok().filter(|segments| (1..=65_535).contains(segments));
                let wrong = || bad(format!("initcwnd: '{value}' is not a number of segments from 1 to 65535"));
                self.initcwnd = Some(segments.ok_or_else(wrong)?);
            }
            "ccs" => {
                self.ccs = parts().map(str::to_owned).collect();
                let is_name = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if self.ccs.is_empty() || !self.ccs.iter().all(is_name) {
                    return Err(bad(format!("ccs: '{value}' is no list of congestion controls, such as reno/cubic")));
                }
            }
            "user" => {
                self.user = match value {
                    "root" => User::Root,
                    "user" => User::User,
                    _ => return Err(bad(format!("user: '{value}' is neither root nor user"))),
                };
            }
            _ => return Err(bad(format!("'{key}' is not one of its keys: {KEYS}"))),
        }
        Ok(())
    }
}

impl FromStr for LabHost {
    type Err = PathError;
    fn from_str(text: &str) -> Result<LabHost, PathError> {
        let bad = |why| PathError::Value { key: "host", why };
        let mut parts = text.split('+');
        let base = match parts.next().unwrap_or_default() {
            "tuned" => Base::Tuned,
            "stock" => Base::Stock,
            other if other.contains(':') => {
                return Err(bad(format!("'{other}' needs a base; write tuned+{other}, or stock+{other}")));
            }
            other => {
                let why = format!("'{other}' is neither stock nor tuned; write for example stock+rmem_max:16777216");
                return Err(bad(why));
            }
        };
        let mut host = base.host();
        for part in parts {
            let pair = part.split_once(':');
            let (key, value) = pair.ok_or_else(|| bad(format!("'{part}' should be KEY:VALUE, as in user:user")))?;
            host.set(key, value)?;
        }
        Ok(host)
    }
}

impl fmt::Display for LabHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.base.host();
        f.write_str(self.base.name())?;
        let three = |[least, first, most]: Autotuning| format!("{least}/{first}/{most}");
        if self.tcp_rmem != base.tcp_rmem {
            write!(f, "+tcp_rmem:{}", three(self.tcp_rmem))?;
        }
        if self.tcp_wmem != base.tcp_wmem {
            write!(f, "+tcp_wmem:{}", three(self.tcp_wmem))?;
        }
        if let Some(pages) = self.tcp_mem {
            write!(f, "+tcp_mem:{}", three(pages))?;
        }
        if self.rmem_max != base.rmem_max {
            write!(f, "+rmem_max:{}", self.rmem_max)?;
        }
        if self.wmem_max != base.wmem_max {
            write!(f, "+wmem_max:{}", self.wmem_max)?;
        }
        if self.qdisc != base.qdisc {
            f.write_str("+qdisc:fq")?;
        }
        if let Some(segments) = self.initcwnd {
            write!(f, "+initcwnd:{segments}")?;
        }
        if !self.ccs.is_empty() {
            write!(f, "+ccs:{}", self.ccs.join("/"))?;
        }
        if self.user == User::User {
            f.write_str("+user:user")?;
        }
        Ok(())
    }
}

impl Serialize for LabHost {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LabHost {
    /// Reads the text, or a table with the same keys and `base`, where what has several parts may be a list.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<LabHost, D::Error> {
        use serde_json::Value;

        fn text(value: &Value) -> String {
            match value {
                Value::String(text) => text.clone(),
                Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" "),
                other => other.to_string(),
            }
        }
        let read = |value| match value {
            Value::String(text) => text.parse(),
            Value::Object(mut table) => {
                let base = table.remove("base").unwrap_or_else(|| "tuned".into());
                let mut host: LabHost = text(&base).parse()?;
                for (key, value) in table {
                    host.set(&key, &text(&value))?;
                }
                Ok(host)
            }
            other => {
                let why =
                    format!("'{other}' is neither a text, such as stock, nor a table, such as {{ base = \"stock\" }}");
                Err(PathError::Value { key: "host", why })
            }
        };
        read(Value::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_table_agree() {
        let text =
            "stock+tcp_rmem:4096/131072/33554432+rmem_max:16777216+qdisc:fq+initcwnd:40+ccs:reno/cubic+user:user";
        let host: LabHost = text.parse().unwrap();
        assert_eq!(host.to_string(), text);
        assert_eq!((host.tcp_rmem[2], host.wmem_max, host.user), (32 << 20, STOCK_MAX, User::User));
        let table = r#"{"base": "stock", "tcp_rmem": "4096 131072 33554432", "rmem_max": 16777216, "qdisc": "fq",
                        "initcwnd": 40, "ccs": "reno cubic", "user": "user"}"#;
        assert_eq!(serde_json::from_str::<LabHost>(table).unwrap(), host);
        assert_eq!(serde_json::from_str::<LabHost>(&serde_json::to_string(&host).unwrap()).unwrap(), host);
        // As people write them.
        let table = r#"{"base": "stock", "tcp_rmem": [4096, "128KiB", "32MiB"], "rmem_max": "16MiB", "qdisc": "fq",
                        "initcwnd": 40, "ccs": ["reno", "cubic"], "user": "user"}"#;
        assert_eq!(serde_json::from_str::<LabHost>(table).unwrap(), host);
        assert_eq!(
            "stock+tcp_rmem:4KiB/128KiB/32MiB+rmem_max:16MiB+qdisc:fq+initcwnd:40+ccs:reno/cubic+user:user".parse(),
            Ok(host)
        );
        for (value, part) in
            [("3", "'3' is neither a text, such as stock"), (r#"{"rmem_max": [1, 2]}"#, "'1 2' is not a number")]
        {
            let error = serde_json::from_str::<LabHost>(value).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!("tuned+tcp_mem:9/10/11".parse::<LabHost>().unwrap().to_string(), "tuned+tcp_mem:9/10/11");
        // What is as in the base needs no words.
        assert_eq!("tuned+user:root".parse::<LabHost>().unwrap().to_string(), "tuned");
        assert!("tuned".parse::<LabHost>().unwrap().is_default());
    }

    #[test]
    fn wrong_hosts_name_the_thing() {
        for (text, part) in [
            ("old", "'old' is neither stock nor tuned"),
            ("qdisc:fq", "write tuned+qdisc:fq, or stock+qdisc:fq"),
            ("stock+rmem", "'rmem' should be KEY:VALUE"),
            ("stock+window:3", "'window' is not one of its keys: tcp_rmem"),
            ("stock+rmem_max:1", "rmem_max: 1 is too little; kernels take 4608 to 2147483647 bytes"),
            ("stock+rmem_max:4294967295", "is too much"),
            ("stock+wmem_max:1TB", "wmem_max: 1TB is too much"),
            ("stock+rmem_max:much", "is not a number of bytes"),
            ("stock+tcp_rmem:4096/1", "is not three numbers"),
            ("stock+tcp_wmem:4096/1/9", "does not increase"),
            ("stock+tcp_mem:10/5/20", "tcp_mem: '10/5/20' is not three rising numbers of pages"),
            ("stock+tcp_mem:0/5/20", "three rising numbers of pages"),
            ("stock+qdisc:fq_codel", "neither fifo nor fq"),
            ("stock+initcwnd:0", "segments from 1"),
            ("stock+ccs:", "no list of congestion controls"),
            ("stock+ccs:reno/../x", "no list of congestion controls"),
            ("stock+user:me", "neither root nor user"),
        ] {
            let error = text.parse::<LabHost>().unwrap_err().to_string();
            assert!(error.contains(part) && error.starts_with("path host: "), "{error}");
        }
    }
}
