//! Prints intervals and results as CSV (RFC 4180, `--csv`). Fields are numbers and plain words, so none needs quotes. A field is
//! empty where the value is not known.

use std::io::Write;

use fullpipe_path::Direction;
use fullpipe_path::record::Outcome;
use fullpipe_path::record::udp::UdpOutcome;

use super::intervals::Interval;
use crate::output::Stdout;

/// The names of the columns.
const HEADER: &str = "kind,run,direction,stream,start_s,end_s,unix_s,bytes,bits_per_second,retransmits,rtt_ms,cwnd_bytes,\
                      datagrams_received,datagrams_lost,datagrams_out_of_order,datagrams_duplicate,jitter_ms";

/// One line of the table.
#[derive(Default)]
struct Row {
    kind: &'static str,
    /// Number of the measurement with `--repeat`, from 1.
    run: u32,
    direction: Option<Direction>,
    /// `None` for all streams.
    stream: Option<u16>,
    start_s: f64,
    end_s: f64,
    unix_s: Option<f64>,
    bytes: u64,
    bps: Option<f64>,
    retransmits: Option<u64>,
    rtt_s: Option<f64>,
    cwnd_bytes: Option<u64>,
    /// Datagrams received, lost, out of order, and duplicate; and the jitter, s.
    udp: Option<([u64; 4], f64)>,
}

impl Row {
    fn text(&self) -> String {
        let direction = self.direction.map_or("", Direction::word);
        let number = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
        let decimal = |value: Option<f64>, digits: usize| value.map(|x| format!("{x:.digits$}")).unwrap_or_default();
        let counts = self.udp.map(|(counts, _)| counts);
        let [received, lost, out_of_order, duplicates] =
            [0, 1, 2, 3].map(|i| number(counts.and_then(|counts| counts.get(i).copied())));
        [
            self.kind.to_owned(),
            self.run.to_string(),
            direction.to_owned(),
            self.stream.map_or_else(|| "all".to_owned(), |stream| stream.to_string()),
            decimal(Some(self.start_s), 6),
            decimal(Some(self.end_s), 6),
            decimal(self.unix_s, 3),
            self.bytes.to_string(),
            decimal(self.bps, 0),
            number(self.retransmits),
            decimal(self.rtt_s.map(|s| s * 1e3), 3),
            number(self.cwnd_bytes),
            received,
            lost,
            out_of_order,
            duplicates,
            decimal(self.udp.map(|(_, jitter_s)| jitter_s * 1e3), 6),
        ]
        .join(",")
    }
}

/// The datagrams and the jitter of a result.
fn datagrams(udp: &UdpOutcome) -> ([u64; 4], f64) {
    ([udp.received, udp.lost, udp.out_of_order, udp.duplicates], udp.jitter_s)
}

/// The row of an interval of one stream, or of all.
fn interval_row(interval: &Interval, run: u32, direction: Direction, stream: Option<u16>) -> Row {
    Row {
        kind: "interval",
        run,
        direction: Some(direction),
        stream,
        start_s: interval.begin_s,
        end_s: interval.end_s,
        unix_s: interval.unix_s,
        bytes: interval.bytes,
        bps: Some(interval.bps),
        retransmits: interval.retransmits,
        rtt_s: interval.rtt_s,
        cwnd_bytes: interval.cwnd_bytes,
        udp: interval.udp.map(|udp| ([udp.received, udp.lost, udp.out_of_order, udp.duplicates], udp.jitter_s)),
    }
}

/// The rows of a result: of the whole run, and of what came after its beginning if that is left out.
fn result_rows(outcome: &Outcome, run: u32, direction: Direction) -> Vec<Row> {
    let begun = outcome.streams.iter().filter(|stream| stream.bytes > 0).map(|stream| stream.first_s);
    let start_s = begun.reduce(f64::min).unwrap_or(0.0);
    let end_s = start_s + outcome.seconds;
    let all = Row {
        kind: "result",
        run,
        direction: Some(direction),
        start_s,
        end_s,
        bytes: outcome.counted_bytes(),
        bps: outcome.goodput_bps,
        retransmits: outcome.udp.is_none().then_some(outcome.retransmits),
        rtt_s: outcome.loaded_rtt.map(|rtt| rtt.p50_s),
        udp: outcome.udp.as_ref().map(datagrams),
        ..Row::default()
    };
    let later = outcome.after_omitted.as_ref().map(|later| Row {
        kind: "after_omitted",
        run,
        direction: Some(direction),
        start_s: end_s - later.seconds,
        end_s,
        bytes: later.bytes,
        bps: later.goodput_bps,
        retransmits: later.udp.is_none().then_some(later.retransmits),
        udp: later.udp.as_ref().map(datagrams),
        ..Row::default()
    });
    [Some(all), later].into_iter().flatten().collect()
}

fn print(lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    // Standard output tells of its failure at the end.
    let _ = Stdout.write_all(text.as_bytes());
}

/// Prints the names of the columns.
pub fn print_header() {
    print(&[HEADER.to_owned()]);
}

/// Prints an interval: a row for each stream if there are several, and one for all.
pub fn print_interval(interval: &Interval, run: u32, direction: Direction) {
    let streams = interval.streams.iter().map(|(stream, part)| interval_row(part, run, direction, Some(*stream)));
    let all = interval_row(interval, run, direction, None);
    print(&streams.chain([all]).map(|row| row.text()).collect::<Vec<_>>());
}

/// Prints a result.
pub fn print_result(outcome: &Outcome, run: u32, direction: Direction) {
    print(&result_rows(outcome, run, direction).iter().map(Row::text).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_field_for_each_column() {
        let row = Row { kind: "result", run: 2, direction: Some(Direction::Send), end_s: 1.5, ..Row::default() };
        assert_eq!(row.text(), "result,2,send,all,0.000000,1.500000,,0,,,,,,,,,");
        assert_eq!(row.text().split(',').count(), HEADER.split(',').count());
        let full = Row {
            stream: Some(3),
            unix_s: Some(1e9),
            bps: Some(1.5e9),
            retransmits: Some(4),
            rtt_s: Some(0.0123456),
            cwnd_bytes: Some(5),
            udp: Some(([6, 7, 8, 9], 1e-6)),
            ..row
        };
        let text = "result,2,send,3,0.000000,1.500000,1000000000.000,0,1500000000,4,12.346,5,6,7,8,9,0.001000";
        assert_eq!(full.text(), text);
    }
}
