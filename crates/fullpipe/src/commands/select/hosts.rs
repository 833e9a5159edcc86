//! A choice between hosts whose kernels grant smaller windows than those of the profile's runs.

use fullpipe_path::transport::MAX_STREAMS;
use fullpipe_path::{LabHost, Protocol, Transport};
use fullpipe_profile::{Choice, ProfileError, Query, Selection};
use fullpipe_transfer::protocol::hello::Limits;

use crate::{format, windows};

/// The hosts of a query, a and b, if it names any and the profile's runs were between others.
fn unmeasured(selection: &Selection, query: &Query) -> Option<[LabHost; 2]> {
    let host =
        |text: &Option<String>| text.as_deref().map_or_else(|| Some(LabHost::default()), |text| text.parse().ok());
    let [a, b] = query.hosts.each_ref().map(host);
    let is_named = query.hosts.iter().any(Option::is_some);
    Some([a?, b?]).filter(|_| is_named && selection.hosts != query.hosts)
}

/// Chooses anew for the query's hosts where the profile's runs were between others: a window limits each stream to so many bytes
/// in a round trip, so that more streams are needed, or the rate is lower. Says so in a note.
///
/// # Errors
/// The sending host allows none of the congestion controls that were measured.
pub fn hold_to(selection: &mut Selection, query: &Query) -> Result<(), ProfileError> {
    let Some(hosts) = unmeasured(selection, query) else { return Ok(()) };
    let limits = hosts.each_ref().map(|host| Limits {
        ccs: host.ccs.clone(),
        send: host.wmem_max.into(),
        receive: host.rmem_max.into(),
        tuned_send: host.tcp_wmem[2].into(),
        tuned_receive: host.tcp_rmem[2].into(),
        ..Limits::default()
    });
    let [a, b] = limits.each_ref();
    let [sender, receiver] = if selection.receives { [b, a] } else { [a, b] };
    let allows = |choice: &&Choice| sender.ccs.is_empty() || sender.ccs.contains(&choice.transport.cc);
    let over_tcp = |choice: &&Choice| choice.transport.protocol() == Protocol::Tcp;
    let there = || selection.ranking.iter().filter(over_tcp).filter(allows);
    if there().next().is_none() && selection.ranking.iter().any(|choice| over_tcp(&choice)) {
        let asked = format!("ccs={}", sender.ccs.join("/"));
        let mut has: Vec<&str> = selection.ranking.iter().filter(over_tcp).map(|c| c.transport.cc.as_str()).collect();
        has.sort_unstable();
        has.dedup();
        return Err(ProfileError::NothingFits { asked, has: format!("ccs={}", has.join("/")) });
    }
    let texts = hosts.map(|host| host.to_string());
    let named = if texts[0] == texts[1] { texts[0].clone() } else { texts.join(" and ") };
    let Some(granted) = windows::granted(sender, receiver).filter(|_| there().next().is_some()) else {
        selection.certain = false;
        selection.notes.push(format!("the profile has no runs between hosts {named}, whose limits do not count here"));
        return Ok(());
    };
    let (mut held, mut ranking): (Vec<(Transport, f64)>, Vec<Choice>) = (Vec::new(), Vec::new());
    for choice in there() {
        let measured = (&choice.transport, choice.expected.mean_bps);
        let (transport, bps) = windows::held(measured, granted, query.rtt_ms * 1e-3, MAX_STREAMS);
        if held.iter().any(|(other, _)| *other == transport) {
            continue;
        }
        let mut expected = choice.expected.clone();
        expected.predict(bps);
        held.push((transport.clone(), bps));
        ranking.push(Choice { transport, expected, tied: false });
    }
    let best = windows::preferred(&held).and_then(|(best, _)| ranking.iter().find(|choice| choice.transport == *best));
    if let Some(best) = best {
        selection.choice = best.clone();
    }
    ranking.sort_by(|a, b| b.expected.mean_bps.total_cmp(&a.expected.mean_bps));
    (selection.certain, selection.needed, selection.ranking) = (false, Vec::new(), ranking);
    selection.notes.push(format!(
        "the profile has no runs between hosts {named}, which let each stream have {} in flight: predicted from runs between tuned \
         hosts, for the streams that their rates take then",
        format::bytes(granted.1)
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fullpipe_path::{Buffer, Rate, Time};
    use fullpipe_profile::{Profile, select};

    use super::*;

    const TUNED: &str = r#"{"kind":"profile","version":2,"confidence":0.95,"workloads":[{"duration":"10s"}],
        "paths":[{"rate_bps":1e10,"queue_bdp":1.0,"mtu":9000,"loss":0.0}],"entries":[
        {"path":0,"workload":0,"transport":{"cc":"cubic","streams":8,"buffer":"1GB"},"rtt_ms":[91.6],"n":[1],"mean_bps":[9e9],"sd_bps":[null]},
        {"path":0,"workload":0,"transport":{"cc":"bbr","streams":1,"buffer":"1GB"},"rtt_ms":[91.6],"n":[1],"mean_bps":[9.2e9],"sd_bps":[null]},
        {"path":0,"workload":0,"transport":{"cc":"udt","streams":1,"buffer":"1GB"},"rtt_ms":[91.6],"n":[1],"mean_bps":[9.9e9],"sd_bps":[null]}]}"#;

    fn chosen(profile: &str, hosts: [Option<&str>; 2]) -> Selection {
        let profile = Profile::parse(profile, Path::new("p.json")).unwrap();
        let rtt: Time = "91.6ms".parse().unwrap();
        let hosts = hosts.map(|host| host.map(str::to_owned));
        let query = Query { rate: Some(Rate(10_000_000_000)), hosts, ..Query::from(rtt) };
        let mut selection = select(&profile, &query).unwrap();
        hold_to(&mut selection, &query).unwrap();
        selection
    }

    #[test]
    fn windows_of_the_hosts_bound_the_rate_and_ask_for_streams() {
        let stock = chosen(TUNED, [Some("stock"); 2]);
        let (transport, expected) = (&stock.choice.transport, &stock.choice.expected);
        // 2.7 MB of each stream in 91.6 ms are 238 Mb/s.
        assert_eq!((transport.cc.as_str(), transport.streams, transport.buffer), ("cubic", 57, Buffer::Auto));
        assert!(expected.predicted && expected.mean_bps == 9e9 && expected.low_bps.is_none(), "{expected:?}");
        assert!(stock.ranking.iter().all(|choice| choice.transport.cc != "udt" && choice.expected.predicted));
        assert!(stock.notes.iter().any(|note| note.contains("hosts stock, which let each stream have 2.726 MB")));
        // One host is enough, and fewer bytes hold even the most streams.
        let small = chosen(TUNED, [None, Some("stock+tcp_rmem:4096/65536/1048576")]);
        assert_eq!(small.choice.transport.streams, MAX_STREAMS);
        assert!((small.choice.expected.mean_bps / (64.0 * 524_288.0 * 8.0 / 0.0916) - 1.0).abs() < 1e-9);
        let only = chosen(TUNED, [Some("stock+ccs:bbr/reno"), None]);
        assert_eq!(only.choice.transport.cc, "bbr");
    }

    #[test]
    fn measured_hosts_need_no_prediction() {
        let tuned = chosen(TUNED, [None, None]);
        assert!(!tuned.choice.expected.predicted && tuned.choice.transport.cc == "udt");
        let stock = TUNED.replace(r#""loss":0.0}"#, r#""loss":0.0,"host_a":"stock","host_b":"stock"}"#);
        let measured = chosen(&stock, [Some("stock"); 2]);
        assert!(!measured.choice.expected.predicted && measured.notes.is_empty(), "{:?}", measured.notes);
    }
}
