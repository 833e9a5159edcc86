//! ALTO maps for path controllers (`--alto`): a network map and a cost map of RFC 7285, whose cost is the throughput of TCP
//! (`tput` of RFC 9439) that the profile has for each path. The operator's file says which paths there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use blake3::Hash;
use fullpipe_path::Protocol;
use fullpipe_profile::{Profile, ProfileError, Query, select};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::http::Page;
use crate::commands::select::query_of;
use crate::failure::{Failure, Result, toml_reason};

/// Path of the information resource directory.
pub const DIRECTORY: &str = "/v1/alto/directory";
/// Path of the network map.
pub const NETWORK_MAP: &str = "/v1/alto/networkmap";
/// Path of the cost map.
pub const COST_MAP: &str = "/v1/alto/costmap/tput";

/// Resource IDs (RFC 7285, section 10.2). Clients keep them.
const NETWORK_MAP_ID: &str = "network-map";
const COST_MAP_ID: &str = "tput-cost-map";
/// Name of the cost type in the directory.
const COST_TYPE: &str = "num-tput";
/// PID for the addresses of which the file says nothing: a network map covers the whole address space of each family that is
/// in it (RFC 7285, section 11.2.2).
const ELSEWHERE: &str = "elsewhere";
/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most paths, in one direction each. A selection takes some milliseconds, and a new profile needs one for each path.
const MAX_PATHS: usize = 1_000;
/// Longest name of a PID, characters (RFC 7285, section 10.1).
const MAX_NAME: usize = 64;

/// The operator's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    /// Most streams of the transports whose throughput counts.
    #[serde(default = "one")]
    streams: u16,
    /// The groups of addresses, by name.
    pid: BTreeMap<String, Pid>,
    /// The paths between them.
    path: Vec<GivenPath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pid {
    prefixes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenPath {
    from: String,
    to: String,
    /// Whether it is the path from `to` to `from`, too.
    #[serde(default)]
    both_ways: bool,
    rtt: toml::Value,
    rate: toml::Value,
    loss: Option<toml::Value>,
    queue: Option<toml::Value>,
    mtu: Option<toml::Value>,
    host: Option<toml::Value>,
}

fn one() -> u16 {
    1
}

/// The throughput to expect on a path, bytes/s, the unit of `tput` (RFC 9439, section 4.1.2), and the congestion control that has
/// it; or what the profile lacks.
type Cost = Result<(u64, String), String>;

/// The PIDs at the ends of a path: from one to the other.
type Ends = (String, String);

/// The cost of each path.
type Costs<'a> = Vec<(&'a Ends, Cost)>;

/// The maps.
pub struct Alto {
    /// Most streams of the transports whose throughput counts.
    streams: u16,
    network_map: Value,
    /// Version tag of the network map.
    tag: String,
    /// The paths, from one PID to another.
    paths: BTreeMap<Ends, Query>,
    /// The cost map, and the hash of the profile that it is from. Locked while it is made, so that it is made once.
    cost_map: Mutex<Option<(Hash, String)>>,
}

impl Alto {
    /// Reads a file of PIDs and paths, each of which must be one that the profile has measurements for.
    ///
    /// # Errors
    /// The file cannot be read, or says something that is wrong; the profile lacks a path.
    pub fn new(file: &Path, profile: &str, name: &Path) -> Result<Alto> {
        let wrong = |why: String| Failure::usage(format!("--alto {}: {why}", file.display()));
        let mut text = String::new();
        let read = File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|e| wrong(format!("it cannot be read: {e}")))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("it has more than {MAX_BYTES} bytes")));
        }
        let alto = Alto::parse(&text).map_err(wrong)?;
        let costs = alto.costs(&Profile::parse(profile, name)?)?;
        if let Some(((from, to), why)) = costs.iter().find_map(|(path, cost)| Some((path, cost.as_ref().err()?))) {
            return Err(wrong(format!("the path from {from} to {to}: {why}")));
        }
        let made = (blake3::hash(profile.as_bytes()), alto.cost_map_of(costs));
        Ok(Alto { cost_map: Mutex::new(Some(made)), ..alto })
    }

    fn parse(text: &str) -> Result<Alto, String> {
        let given: Given = toml::from_str(text).map_err(|error| toml_reason(text, &error))?;
        if given.streams == 0 {
            return Err("streams = 0: give 1 or more".into());
        }
        let network_map = network_map(&given.pid)?;
        let paths = paths(&given)?;
        let tag = blake3::hash(network_map.to_string().as_bytes()).to_string();
        Ok(Alto { streams: given.streams, network_map, tag, paths, cost_map: Mutex::default() })
    }

    /// Returns the page of a path, made from this profile. `None` if there is no such page.
    ///
    /// # Errors
    /// The profile cannot be used.
    pub fn page(&self, path: &str, profile: &str, name: &Path) -> Result<Option<Page>, ProfileError> {
        let page = |media, text| Ok(Some(Page { media, text }));
        match path {
            DIRECTORY => page("application/alto-directory+json", self.directory().to_string()),
            NETWORK_MAP => {
                let meta = json!({"vtag": self.version_tag()});
                let map = json!({"meta": meta, "network-map": self.network_map});
                page("application/alto-networkmap+json", map.to_string())
            }
            COST_MAP => page("application/alto-costmap+json", self.cost_map(profile, name)?),
            _ => Ok(None),
        }
    }

    fn version_tag(&self) -> Value {
        json!({"resource-id": NETWORK_MAP_ID, "tag": self.tag})
    }

    /// The cost type, with the congestion controls for which the costs hold, where they are known.
    fn cost_type(&self, congestion_controls: Option<Map<String, Value>>) -> Value {
        let mut parameters = json!({
            "method": "mean goodput, start-up included, of the profile's runs over the nearest kind of path, linear between \
                       measured round-trip times; of the transport with the highest mean (fullpipe select)",
            "most-streams": self.streams,
        });
        if let Some(congestion_controls) = congestion_controls {
            parameters["congestion-control-algorithm"] = congestion_controls.into();
        }
        json!({
            "cost-mode": "numerical",
            "cost-metric": "tput",
            "cost-context": {"cost-source": "estimation", "parameters": parameters},
            "description": "throughput of TCP from measurements, bytes per second",
        })
    }

    fn directory(&self) -> Value {
        json!({
            "meta": {
                "cost-types": {COST_TYPE: self.cost_type(None)},
                "default-alto-network-map": NETWORK_MAP_ID,
            },
            "resources": {
                NETWORK_MAP_ID: {"uri": NETWORK_MAP, "media-type": "application/alto-networkmap+json"},
                COST_MAP_ID: {
                    "uri": COST_MAP,
                    "media-type": "application/alto-costmap+json",
                    "capabilities": {"cost-type-names": [COST_TYPE]},
                    "uses": [NETWORK_MAP_ID],
                },
            },
        })
    }

    /// Returns the cost map, and makes it if the profile is another one than the last time. It lacks the paths for which the profile
    /// has nothing.
    fn cost_map(&self, profile: &str, name: &Path) -> Result<String, ProfileError> {
        let hash = blake3::hash(profile.as_bytes());
        let mut made = self.cost_map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = made.as_ref().filter(|(of, _)| *of == hash) {
            return Ok(text.clone());
        }
        let text = self.cost_map_of(self.costs(&Profile::parse(profile, name)?)?);
        *made = Some((hash, text.clone()));
        Ok(text)
    }

    /// The cost of each path.
    ///
    /// # Errors
    /// The profile cannot be used.
    fn costs(&self, profile: &Profile) -> Result<Costs<'_>, ProfileError> {
        self.paths.iter().map(|(path, query)| Ok((path, self.cost(profile, query)?))).collect()
    }

    /// The cost map with those costs that there are.
    fn cost_map_of(&self, costs: Costs<'_>) -> String {
        let (mut map, mut congestion_controls) = (Map::new(), Map::new());
        for ((from, to), cost) in costs {
            let Ok((bytes_per_s, cc)) = cost else { continue };
            for (map, value) in [(&mut map, bytes_per_s.into()), (&mut congestion_controls, cc.into())] {
                map.entry(from.as_str()).or_insert_with(|| json!({}))[to] = value;
            }
        }
        let meta = json!({
            "dependent-vtags": [self.version_tag()],
            "cost-type": self.cost_type(Some(congestion_controls)),
        });
        json!({"meta": meta, "cost-map": map}).to_string()
    }

    fn cost(&self, profile: &Profile, query: &Query) -> Result<Cost, ProfileError> {
        let selection = match select(profile, query) {
            Ok(selection) => selection,
            Err(lacks @ ProfileError::NothingFits { .. }) => return Ok(Err(lacks.to_string())),
            Err(error) => return Err(error),
        };
        let best = selection.ranking.iter().find(|choice| choice.transport.streams <= self.streams);
        Ok(best.map(|best| ((best.expected.mean_bps / 8.0) as u64, best.transport.cc.clone())).ok_or_else(|| {
            let least = selection.ranking.iter().map(|choice| choice.transport.streams).min().unwrap_or_default();
            format!("the profile has no transport of at most streams = {}; the fewest are {least}", self.streams)
        }))
    }
}

/// The data of the network map.
fn network_map(pids: &BTreeMap<String, Pid>) -> Result<Value, String> {
    if pids.is_empty() {
        return Err("it has no PID; write [pid.NAME] with prefixes = [\"192.0.2.0/24\"]".into());
    }
    let mut owner: BTreeMap<IpNet, &str> = BTreeMap::new();
    let mut map = Map::new();
    for (name, pid) in pids {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-:@_".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
            return Err(format!("[pid.{name:?}]: a name has 1 to {MAX_NAME} of the characters A-Z, a-z, 0-9, - : @ _"));
        }
        if pid.prefixes.is_empty() {
            return Err(format!("[pid.{name}] has no prefixes; give some, such as \"192.0.2.0/24\""));
        }
        let mut group = json!({});
        for text in &pid.prefixes {
            let prefix: IpNet = text
                .parse()
                .map_err(|_| format!("[pid.{name}] prefixes: {text:?} is no prefix, such as \"192.0.2.0/24\""))?;
            if prefix != prefix.trunc() {
                let whole = prefix.trunc();
                return Err(format!("[pid.{name}] prefixes: {text:?} is an address in a prefix; write \"{whole}\""));
            }
            if let Some(other) = owner.insert(prefix, name) {
                return Err(format!("[pid.{name}] prefixes: {text:?} is in [pid.{other}] already"));
            }
            add(&mut group, &prefix);
        }
        map.insert(name.clone(), group);
    }
    let mut rest = json!({});
    for whole in ["0.0.0.0/0", "::/0"].iter().filter_map(|whole| whole.parse::<IpNet>().ok()) {
        let is_used = owner.keys().any(|prefix| family(prefix) == family(&whole));
        if is_used && !owner.contains_key(&whole) {
            add(&mut rest, &whole);
        }
    }
    if rest != json!({}) {
        if pids.contains_key(ELSEWHERE) {
            return Err(format!(
                "[pid.{ELSEWHERE}] is the PID of all other addresses: give it \"0.0.0.0/0\" and \"::/0\", or another name"
            ));
        }
        map.insert(ELSEWHERE.into(), rest);
    }
    Ok(map.into())
}

/// Adds a prefix to an endpoint address group (RFC 7285, section 10.4.5).
fn add(group: &mut Value, prefix: &IpNet) {
    let prefixes = &mut group[family(prefix)];
    match prefixes {
        Value::Array(prefixes) => prefixes.push(prefix.to_string().into()),
        none => *none = json!([prefix.to_string()]),
    }
}

/// The address type of a prefix (RFC 7285, section 10.4.2).
fn family(prefix: &IpNet) -> &'static str {
    match prefix {
        IpNet::V4(_) => "ipv4",
        IpNet::V6(_) => "ipv6",
    }
}

/// The paths, each as a query to the profile.
fn paths(given: &Given) -> Result<BTreeMap<Ends, Query>, String> {
    if given.path.is_empty() {
        return Err("it has no path; write [[path]] with from, to, rtt and rate".into());
    }
    let mut paths = BTreeMap::new();
    for (i, path) in given.path.iter().enumerate() {
        let (GivenPath { from, to, .. }, place) = (path, format!("[[path]] {}", i + 1));
        for (key, pid) in [("from", from), ("to", to)] {
            if !given.pid.contains_key(pid) {
                return Err(format!("{place}: {key} = {pid:?}, and there is no [pid.{pid}]"));
            }
        }
        let place = format!("{place} ({from} to {to})");
        let properties = [
            ("rtt", Some(&path.rtt)),
            ("rate", Some(&path.rate)),
            ("loss", path.loss.as_ref()),
            ("queue", path.queue.as_ref()),
            ("mtu", path.mtu.as_ref()),
            ("host", path.host.as_ref()),
        ];
        let given_ones = properties.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let asked = given_ones.map(|(name, value)| {
            let value = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                _ => return Err(format!("{place}: {name} is neither a text nor a number")),
            };
            Ok((name.to_owned(), value))
        });
        let asked: Vec<(String, String)> = asked.collect::<Result<_, _>>()?;
        let query = query_of(&asked).map_err(|why| format!("{place}: {why}"))?;
        let query = Query { protocol: Some(Protocol::Tcp), ..query };
        let back = (path.both_ways && from != to).then_some((to, from));
        for (from, to) in [Some((from, to)), back].into_iter().flatten() {
            if paths.insert((from.clone(), to.clone()), query.clone()).is_some() {
                return Err(format!("{place}: there is a path from {from} to {to} above already"));
            }
        }
    }
    if paths.len() > MAX_PATHS {
        return Err(format!("it has {} paths, more than {MAX_PATHS}", paths.len()));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENEVA: &str = "[pid.geneva]\nprefixes = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n";
    const CHICAGO: &str = "[pid.chicago]\nprefixes = [\"198.51.100.0/24\"]\n";
    const PATH: &str = "[[path]]\nfrom = \"geneva\"\nto = \"chicago\"\nrtt = \"91.6ms\"\nrate = \"10gbit\"\n";

    fn parse(parts: &[&str]) -> Result<Alto, String> {
        Alto::parse(&parts.concat())
    }

    #[test]
    fn a_network_map_has_all_addresses_of_its_families_once() {
        let map = |parts: &[&str]| parse(parts).unwrap().network_map;
        let only_ipv4 = map(&[&GENEVA.replace(", \"2001:db8::/32\"", ""), CHICAGO, PATH]);
        assert_eq!(only_ipv4["elsewhere"], json!({"ipv4": ["0.0.0.0/0"]}));
        let both = map(&[GENEVA, CHICAGO, PATH]);
        assert_eq!(both["geneva"], json!({"ipv4": ["192.0.2.0/24"], "ipv6": ["2001:db8::/32"]}));
        assert_eq!(both["elsewhere"], json!({"ipv4": ["0.0.0.0/0"], "ipv6": ["::/0"]}));
        let all = "[pid.elsewhere]\nprefixes = [\"0.0.0.0/0\", \"::/0\"]\n";
        assert_eq!(map(&[all, GENEVA, CHICAGO, PATH]).as_object().unwrap().len(), 3);
    }

    #[test]
    fn the_tag_changes_with_the_network_map_and_with_nothing_else() {
        let tag = |parts: &[&str]| parse(parts).unwrap().tag;
        let one = tag(&[GENEVA, CHICAGO, PATH]);
        assert!(one.len() <= 64 && one.is_ascii());
        assert_eq!(one, tag(&[CHICAGO, GENEVA, &PATH.replace("91.6ms", "10ms")]));
        assert_ne!(one, tag(&[GENEVA, &CHICAGO.replace("198.51.100", "203.0.113"), PATH]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (parts, says) in [
            (vec!["x"], "line 1: "),
            (vec![PATH], "line 1: missing field `pid`"),
            (vec![GENEVA], "missing field `path`"),
            (vec!["path = []\n", GENEVA], "it has no path; write [[path]]"),
            (vec![GENEVA, CHICAGO, PATH, "rat = 1\n"], "line 10: unknown field `rat`, expected one of `from`"),
            (vec!["stream = 1\n", GENEVA], "line 1: unknown field `stream`"),
            (vec!["streams = 0\n", GENEVA, CHICAGO, PATH], "streams = 0: give 1 or more"),
            (vec![GENEVA, PATH], "[[path]] 1: to = \"chicago\", and there is no [pid.chicago]"),
            (vec![GENEVA, CHICAGO, &PATH.replace("rtt = \"91.6ms\"\n", "")], "missing field `rtt`"),
            (
                vec![GENEVA, CHICAGO, &PATH.replace("91.6ms", "soon")],
                "[[path]] 1 (geneva to chicago): invalid value 'soon' for '--rtt",
            ),
            (vec![GENEVA, CHICAGO, PATH, "loss = true\n"], "loss is neither a text nor a number"),
            (
                vec![GENEVA, CHICAGO, PATH, PATH],
                "[[path]] 2 (geneva to chicago): there is a path from geneva to chicago above already",
            ),
            (
                vec![&GENEVA.replace(".0/24", ".1/24"), CHICAGO, PATH],
                "\"192.0.2.1/24\" is an address in a prefix; write \"192.0.2.0/24\"",
            ),
            (vec![&GENEVA.replace("/24", ""), CHICAGO, PATH], "[pid.geneva] prefixes: \"192.0.2.0\" is no prefix"),
            (
                vec![GENEVA, &CHICAGO.replace("198.51.100", "192.0.2"), PATH],
                "\"192.0.2.0/24\" is in [pid.chicago] already",
            ),
            (vec![&GENEVA.replace("geneva", "'a.b'"), CHICAGO, PATH], "[pid.\"a.b\"]: a name has 1 to 64"),
            (vec![&CHICAGO.replace("chicago", "elsewhere"), GENEVA, CHICAGO, PATH], "\"198.51.100.0/24\" is in"),
            (
                vec!["[pid.elsewhere]\nprefixes = [\"10.0.0.0/8\"]\n", GENEVA, CHICAGO, PATH],
                "the PID of all other addresses",
            ),
            (vec!["[pid.a]\nprefixes = []\n", GENEVA, CHICAGO, PATH], "[pid.a] has no prefixes"),
        ] {
            let why = parse(&parts).err().unwrap_or_default();
            assert!(why.contains(says) && !why.contains('\n'), "{says:?}: {why}");
        }
    }

    #[test]
    fn a_path_may_stand_for_both_directions() {
        let keys = |parts: &[&str]| parse(parts).unwrap().paths.into_keys().map(|(from, _)| from).collect::<Vec<_>>();
        assert_eq!(keys(&[GENEVA, CHICAGO, PATH]), ["geneva"]);
        assert_eq!(keys(&[GENEVA, CHICAGO, PATH, "both_ways = true\n"]), ["chicago", "geneva"]);
    }
}
