//! What a kernel lacks for a transport, and the commands for root that change it.

use fullpipe_transfer::protocol::hello::Limits;

use crate::format;

/// The command that lets every user take CUBIC beside the congestion controls that the kernel allows already.
pub fn cubic(allowed: &[String]) -> String {
    allow("cubic", allowed)
}

/// Says that the sender cannot take a congestion control, and the commands that change it.
pub fn missing_cc(cc: &str, allowed: &[String]) -> String {
    format!(
        "the sender's kernel lacks {cc}, or keeps it from this user; as root there: modprobe tcp_{cc}; {}",
        allow(cc, allowed)
    )
}

fn allow(cc: &str, allowed: &[String]) -> String {
    // The other end may have sent the names, and the user may paste the command.
    let is_name = |cc: &&str| cc.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names: Vec<&str> = allowed.iter().map(String::as_str).filter(is_name).chain([cc]).collect();
    format!("sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{}\"", names.join(" "))
}

/// Says which kernel grants no buffers of so many bytes, and the command that changes it.
pub fn larger_buffers(bytes: u64, sender: &Limits, receiver: &Limits) -> String {
    let set = format!("sysctl -w net.core.wmem_max={bytes} net.core.rmem_max={bytes}");
    let (whose, most, at) = match (sender.send < bytes, receiver.receive < bytes) {
        (true, false) => ("the sender's kernel grants", sender.send, "there"),
        (false, true) => ("the receiver's kernel grants", receiver.receive, "there"),
        _ => ("both kernels grant", sender.send.min(receiver.receive), "on both"),
    };
    format!("{whose} sockets only {}; as root {at}: {set}", format::bytes(most as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_that_lacks_it_is_named() {
        let [stock, tuned] = [212_992, 1 << 30].map(|most| Limits { send: most, receive: most, ..Limits::default() });
        for (sender, receiver, begins) in [
            (&stock, &tuned, "the sender's kernel grants sockets only 213.0 KB; as root there: sysctl"),
            (&tuned, &stock, "the receiver's kernel grants sockets only 213.0 KB; as root there: sysctl"),
            (&stock, &stock, "both kernels grant sockets only 213.0 KB; as root on both: sysctl"),
        ] {
            let why = larger_buffers(1_000_000_000, sender, receiver);
            assert!(why.starts_with(begins), "{why}");
        }
        let why = missing_cc("hybla", &["reno".to_owned(), "cubic".to_owned()]);
        assert!(
            why.ends_with("modprobe tcp_hybla; sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic hybla\""),
            "{why}"
        );
    }
}
