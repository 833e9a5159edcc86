//! Commands for root that let a kernel do what a transport needs.

/// The command that lets every user take CUBIC beside the congestion controls that the kernel allows already.
pub fn cubic(allowed: &[String]) -> String {
    // The other end may have sent the names, and the user may paste the command.
    let is_name = |cc: &&str| cc.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names: Vec<&str> = allowed.iter().map(String::as_str).filter(is_name).chain(["cubic"]).collect();
    format!("sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{}\"", names.join(" "))
}

/// The command that lets sockets ask for buffers of so many bytes.
pub fn larger_buffers(bytes: u64) -> String {
    format!("sysctl -w net.core.wmem_max={bytes} net.core.rmem_max={bytes}")
}
