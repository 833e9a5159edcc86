//! Numbers as people read them, and parts of results that `cp` and `serve` print alike.

use fullpipe_path::text;
use fullpipe_transfer::protocol::message::Verified;
use fullpipe_transfer::protocol::name::printable;
use fullpipe_transfer::protocol::not_kept::{Entries, NotKept};
use fullpipe_transfer::{Skipped, SkippedEntry};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// A word as a shell takes it.
pub fn quoted(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), |quoted| quoted.into_owned())
}

/// A number with its noun: `1 run`, `2 runs`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(n), if n == 1 { one } else { many })
}

/// A number with commas: `1,000,000`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate in four digits: `9.412 Gb/s`, `93.51 Mb/s`.
pub fn rate(bps: f64) -> String {
    let (value, unit) = match bps {
        b if b >= 1e9 => (b * 1e-9, "Gb/s"),
        b if b >= 1e6 => (b * 1e-6, "Mb/s"),
        b if b >= 1e3 => (b * 1e-3, "kb/s"),
        b => (b, "b/s"),
    };
    format!("{} {unit}", four(value))
}

/// A size in four digits: `268.4 MB`.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= 1e9 => (b * 1e-9, "GB"),
        b if b >= 1e6 => (b * 1e-6, "MB"),
        b if b >= 1e3 => (b * 1e-3, "KB"),
        b => return format!("{b:.0} B"),
    };
    format!("{} {unit}", four(value))
}

/// A time in four digits: `1.307 s`, `52.10 us`.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s {
        s if s >= 1.0 || s <= 0.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    format!("{} {unit}", four(value))
}

/// A time in ms without needless zeros: `91.6`.
pub fn ms(ms: f64) -> String {
    let text = format!("{ms:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A fraction as a percentage without needless zeros: `95%`, `99.9%`.
pub fn percent(fraction: f64) -> String {
    let text = format!("{:.4}", fraction * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A number in four digits.
fn four(value: f64) -> String {
    let whole = if value < 1.0 { 1 } else { value.log10() as usize + 1 };
    format!("{value:.*}", 4usize.saturating_sub(whole))
}

/// What `--verify` read back from storage, as JSON.
pub fn verified(verified: &Verified) -> Value {
    json!({"files": verified.files, "bytes": verified.bytes, "seconds": verified.busy_ns as f64 / 1e9,
           "after_s": verified.after_ns as f64 / 1e9})
}

/// What `--verify` read back, as the end of a line: `; 3 files, 1.200 GB verified in 1.310 s, 212.0 ms of it at the end`.
pub fn verified_line(verified: &Verified) -> String {
    format!(
        "; {}, {} verified in {}, {} of it at the end",
        count(verified.files, "file", "files"),
        bytes(verified.bytes as f64),
        seconds(verified.busy_ns as f64 / 1e9),
        seconds(verified.after_ns as f64 / 1e9)
    )
}

/// What could not be kept of copied files, as JSON.
pub fn not_kept(not_kept: &NotKept) -> Vec<Value> {
    let kinds = kinds(not_kept).into_iter().map(|(what, entries)| {
        json!({"what": what, "files": entries.total, "first": printable(&entries.first), "why": text::from_peer(&entries.why)})
    });
    let attributes = not_kept.refused.named.iter().map(|one| {
        json!({"what": "extended attribute", "files": 1, "first": printable(&one.name), "why": text::from_peer(&one.why)})
    });
    kinds.chain(attributes).collect()
}

/// What could not be kept of copied files, as a line for each kind and for each extended attribute. A file is named only if
/// it is the first of its kind.
pub fn not_kept_lines(not_kept: &NotKept) -> Vec<String> {
    let kinds = kinds(not_kept).into_iter().map(|(what, entries)| {
        let (total, first) = (count(entries.total, "file or folder", "files or folders"), printable(&entries.first));
        format!("{what} of {total}, the first {first}: {}", text::from_peer(&entries.why))
    });
    kinds.chain(not_kept.refused.named.iter().map(SkippedEntry::to_string)).collect()
}

/// The kinds of what was not kept, each with its name.
fn kinds(not_kept: &NotKept) -> Vec<(&'static str, Entries)> {
    let mut links = not_kept.hard_links.clone();
    links.why = format!("{}, {} more", links.why, bytes(not_kept.hard_link_bytes as f64));
    let all = [
        ("owner", &not_kept.owner),
        ("setuid, setgid or sticky bits", &not_kept.special),
        ("extended attributes", &not_kept.attributes),
        ("access control lists", &not_kept.access_lists),
        ("stripes", &not_kept.stripes),
        ("hard links", &links),
    ];
    all.into_iter().filter(|(_, entries)| entries.total > 0).map(|(what, entries)| (what, entries.clone())).collect()
}

/// What was not copied, as JSON.
pub fn left(left: &Skipped) -> Vec<Value> {
    let one = |left: &SkippedEntry| json!({"name": printable(&left.name), "why": text::from_peer(&left.why), "for_good": left.for_good});
    left.named.iter().map(one).collect()
}

/// The present time, UTC, to the second.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// A time in seconds since 1970, as HTTP and iperf3 write it: `Thu, 26 Nov 2026 20:16:09 GMT`.
pub fn http_time(unix_s: i64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(unix_s).ok()?;
    Some(time.format(&Rfc2822).ok()?.replace("+0000", "GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_read_them() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(count(1, "run", "runs"), "1 run");
        assert_eq!(rate(9.4123e9), "9.412 Gb/s");
        assert_eq!(rate(93.514e6), "93.51 Mb/s");
        assert_eq!(rate(0.0), "0.000 b/s");
        assert_eq!(bytes(268_435_456.0), "268.4 MB");
        assert_eq!(bytes(212.0), "212 B");
        assert_eq!(seconds(100.0), "100.0 s");
        assert_eq!(seconds(0.00052134), "521.3 us");
        assert_eq!(percent(0.95), "95%");
        assert_eq!(percent(0.999), "99.9%");
        assert_eq!(ms(120.0), "120");
        assert_eq!(ms(45.6), "45.6");
        assert_eq!(http_time(1_795_724_169).unwrap(), "Thu, 26 Nov 2026 20:16:09 GMT");
    }
}
