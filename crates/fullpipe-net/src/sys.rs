//! System calls that no safe wrapper covers. All unsafe code of this crate is here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Most bytes that `getsockopt(TCP_INFO)` may fill. The kernel's structure grows only at its end.
pub const TCP_INFO_MAX: usize = 320;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Reads `CLOCK_MONOTONIC`, nanoseconds.
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Sleeps until `CLOCK_MONOTONIC` shows `at_ns`. Signals do not end the sleep early.
pub fn sleep_until(at_ns: u64) {
    let ts = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `ts` is valid, and with TIMER_ABSTIME no remainder is written.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &ts, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Makes timers as exact as the kernel can (`prctl(2)`, PR_SET_TIMERSLACK), for this thread and the threads that it starts.
pub fn exact_timers() {
    // SAFETY: takes plain integers; a kernel that refuses changes nothing.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Reads TCP_INFO into `buffer` and returns the number of bytes that this kernel fills.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn tcp_info(fd: BorrowedFd<'_>, buffer: &mut [u8; TCP_INFO_MAX]) -> io::Result<usize> {
    let mut len = TCP_INFO_MAX as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a buffer of that length.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, buffer.as_mut_ptr().cast(), &mut len)
    })?;
    Ok(len as usize)
}

/// Returns the bytes that have arrived and have not been read yet (SIOCINQ, `tcp(7)`).
///
/// # Errors
/// The descriptor is not a connected socket.
pub fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &mut value) })?;
    Ok(value as u64)
}

/// Reads and drops up to `most` bytes without copying them (MSG_TRUNC, `tcp(7)`). With `all`, it returns only when `most`
/// bytes have arrived, the stream has ended, or the socket was shut down.
///
/// # Errors
/// See `recv(2)`.
pub fn discard(fd: BorrowedFd<'_>, most: usize, all: bool) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | if all { libc::MSG_WAITALL } else { 0 };
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, so null is never touched.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, flags) })
}

/// Sends up to `most` bytes of `file` from `offset` without copying them; returns how many were sent.
///
/// # Errors
/// See `sendfile(2)`.
pub fn send_from(fd: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: both descriptors are open, and `offset` is a valid off_t.
    check_len(unsafe { libc::sendfile(fd.as_raw_fd(), file.as_raw_fd(), &mut offset, most) })
}

/// Limits the pacing rate of a socket, bytes per second (`SO_MAX_PACING_RATE`). The value has 64 bits, which kernels from
/// 4.20 on take (net/core/sock.c).
///
/// # Errors
/// The kernel refuses the setting.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    // SAFETY: passes a pointer to eight bytes and says so.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads the limit of a socket's pacing rate, bytes per second.
///
/// # Errors
/// The descriptor is not a socket.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most eight bytes.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, (&raw mut value).cast(), &mut len)
    })?;
    Ok(value)
}

/// Reads an `int` option of a socket.
///
/// # Errors
/// The socket has no such option.
pub fn int_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most one int.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Returns how many messages a socket has dropped on arrival, as it had no room for them or their checksum was wrong (`SO_MEMINFO`,
/// Linux 4.12; include/uapi/linux/sock_diag.h). Segments that the kernel has joined count as one.
///
/// # Errors
/// The kernel does not tell.
pub fn dropped(fd: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut counts = [0_u32; DROPS + 1];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into an array of that length.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, counts.as_mut_ptr().cast(), &mut len)
    })?;
    Ok(counts[DROPS])
}

/// Sets an `int` option of a socket.
///
/// # Errors
/// The kernel refuses the value.
pub fn set_int_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: passes a pointer to one int and says so.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) }).map(drop)
}

/// Makes a memory file of `len` pseudo-random bytes, which nothing on a path can compress.
///
/// # Errors
/// The kernel has no memory, or no `memfd_create`.
pub fn random_memory_file(len: usize) -> io::Result<OwnedFd> {
    // By system call: glibc has it since 2.27 only.
    let fd = rustix::fs::memfd_create(c"fullpipe", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let data: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| {
            // xorshift64: quality does not matter here, speed does.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(len)
        .collect();
    let mut file = std::fs::File::from(fd);
    io::Write::write_all(&mut file, &data)?;
    Ok(file.into())
}

/// Waits until one of `fds` is readable or broken, or for `timeout_ns`; returns which of them are.
///
/// # Errors
/// See `ppoll(2)`. EINTR is no error here: no descriptor is ready then.
pub fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout_ns: u64) -> io::Result<[bool; N]> {
    wait_ready(fds.map(|fd| (fd, libc::POLLIN)), timeout_ns)
}

/// Waits until one of `fds` is ready for one of its events (POLLIN, POLLOUT) or broken, or for `timeout_ns`; returns which of
/// them are. A descriptor without events is not watched.
///
/// # Errors
/// See [`wait_readable`].
pub fn wait_ready<const N: usize>(fds: [(BorrowedFd<'_>, libc::c_short); N], timeout_ns: u64) -> io::Result<[bool; N]> {
    // The kernel passes over negative descriptors.
    let watched = |fd: BorrowedFd<'_>, events| if events == 0 { -1 } else { fd.as_raw_fd() };
    let mut polls = fds.map(|(fd, events)| libc::pollfd { fd: watched(fd, events), events, revents: 0 });
    let ts = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the array and the timespec live across the call, and the length is the array's.
    match check(unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, &ts, std::ptr::null()) }) {
        Ok(_) => Ok(polls.map(|p| p.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// Messages that [`send_datagrams`] and [`receive_datagrams`] hand over in one call, at most.
pub const MAX_MESSAGES: usize = 64;

/// Memory for the control messages of one received message: its time of arrival, and the length of its segments.
const CONTROL_BYTES: usize = 64;

/// A control buffer, aligned as `cmsg(3)` wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// A message for [`send_datagrams`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving<'a> {
    /// Its bytes: one datagram or several.
    pub bytes: &'a [u8],
    /// When it leaves, ns of `CLOCK_MONOTONIC`; 0 for at once. Only an interface's fq qdisc waits for it.
    pub at_ns: u64,
}

/// Allows messages of a UDP socket to have a time at which they leave (`SO_TXTIME`, include/uapi/linux/net_tstamp.h).
///
/// # Errors
/// The kernel has no such option, or wants a privilege for it.
pub fn allow_departure_times(fd: BorrowedFd<'_>) -> io::Result<()> {
    let terms = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
    let len = size_of::<libc::sock_txtime>() as libc::socklen_t;
    // SAFETY: passes a pointer to one sock_txtime and says how long it is.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TXTIME, (&raw const terms).cast(), len)
    })
    .map(drop)
}

/// Sends messages on a connected UDP socket, each cut by the kernel into datagrams of `segment_bytes` (`UDP_SEGMENT`, udp(7)).
/// It does not wait. Returns how many messages were sent.
///
/// # Errors
/// See `sendmmsg(2)`, for the first message; `WouldBlock` if the kernel has no room for it. `InvalidInput` (EINVAL) for a message
/// with a time on a socket without [`allow_departure_times`].
pub fn send_datagrams(fd: BorrowedFd<'_>, messages: &[Leaving<'_>], segment_bytes: u16) -> io::Result<usize> {
    let mut controls = [ControlBuffer([0; CONTROL_BYTES]); MAX_MESSAGES];
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_MESSAGES];
    // SAFETY: all zeros are a valid mmsghdr: no name, no buffers, no control message.
    let mut headers: [libc::mmsghdr; MAX_MESSAGES] = unsafe { std::mem::zeroed() };
    for (((message, part), header), control) in messages.iter().zip(&mut parts).zip(&mut headers).zip(&mut controls) {
        *part = libc::iovec { iov_base: message.bytes.as_ptr().cast_mut().cast(), iov_len: message.bytes.len() };
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the header has a control buffer of CONTROL_BYTES, aligned as a header of a control message, with room for one
        // message of two bytes and one of eight. They are written one behind the other, and the length is what they take.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header.msg_hdr);
            write_control(first, (libc::SOL_UDP, libc::UDP_SEGMENT), segment_bytes);
            let mut len = libc::CMSG_SPACE(size_of::<u16>() as u32);
            if message.at_ns > 0 {
                let second = libc::CMSG_NXTHDR(&header.msg_hdr, first);
                write_control(second, (libc::SOL_SOCKET, libc::SCM_TXTIME), message.at_ns);
                len += libc::CMSG_SPACE(size_of::<u64>() as u32);
            }
            header.msg_hdr.msg_controllen = len as _;
        }
    }
    let count = messages.len().min(MAX_MESSAGES);
    // SAFETY: the first `count` headers point to buffers that live across the call, and the kernel only reads them.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, libc::MSG_DONTWAIT as _) };
    check(sent).map(|sent| sent as usize)
}

/// Writes a control message of `(level, type)`.
///
/// # Safety
/// `to` points to a header of a control message, with room for `data` behind it.
// SAFETY: it writes a header and data into memory that the caller has made room in.
unsafe fn write_control<T>(to: *mut libc::cmsghdr, (level, kind): (libc::c_int, libc::c_int), data: T) {
    // SAFETY: as the caller promises, the pointer is to a header with room for the data.
    unsafe {
        (*to).cmsg_level = level;
        (*to).cmsg_type = kind;
        (*to).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
        libc::CMSG_DATA(to).cast::<T>().write_unaligned(data);
    }
}

/// A message that has arrived on a UDP socket: one datagram or, with `UDP_GRO`, several.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrived {
    /// Bytes of the message.
    pub bytes: usize,
    /// Bytes of each of its datagrams but the last, which may be shorter.
    pub segment_bytes: usize,
    /// When it arrived, ns of `CLOCK_REALTIME` (`SO_TIMESTAMPNS`, socket(7)).
    pub at_ns: Option<u64>,
}

/// Receives the messages that are there, without waiting. Message i lies in `into` from i times `stride` on.
///
/// # Errors
/// See `recvmmsg(2)`. That nothing is there is no error.
pub fn receive_datagrams(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    stride: usize,
) -> io::Result<impl Iterator<Item = Arrived> + use<>> {
    let mut controls = [ControlBuffer([0; CONTROL_BYTES]); MAX_MESSAGES];
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_MESSAGES];
    // SAFETY: all zeros are a valid mmsghdr: no name, no buffers, no control message.
    let mut headers: [libc::mmsghdr; MAX_MESSAGES] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for (((slot, control), part), header) in
        into.chunks_exact_mut(stride).zip(&mut controls).zip(&mut parts).zip(&mut headers)
    {
        *part = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        count += 1;
    }
    // SAFETY: the first `count` headers point to buffers of the lengths that they name, which live across the call.
    let got = unsafe {
        libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
    };
    let got = match check(got) {
        Ok(got) => got as usize,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    let mut arrived = [Arrived::default(); MAX_MESSAGES];
    for (one, header) in arrived.iter_mut().zip(&headers).take(got) {
        let bytes = header.msg_len as usize;
        *one = Arrived { bytes, segment_bytes: bytes, at_ns: None };
        let mut next: *mut libc::cmsghdr = std::ptr::null_mut();
        loop {
            // SAFETY: the kernel has written whole control messages into the header's buffer, and their total length into the
            // header; `next` is null or one of them.
            let control = unsafe {
                next = if next.is_null() {
                    libc::CMSG_FIRSTHDR(&header.msg_hdr)
                } else {
                    libc::CMSG_NXTHDR(&header.msg_hdr, next)
                };
                next.as_ref()
            };
            let Some(control) = control else { break };
            // SAFETY: `next` is a control message, and its data follow it.
            read_control(control, unsafe { libc::CMSG_DATA(next) }, one);
        }
    }
    Ok(arrived.into_iter().take(got))
}

/// Reads what the kernel says of a message beside its bytes: a header, and where its data are.
fn read_control(control: &libc::cmsghdr, data: *const u8, one: &mut Arrived) {
    match (control.cmsg_level, control.cmsg_type) {
        (libc::SOL_UDP, libc::UDP_GRO) => {
            // SAFETY: the kernel gives an int (udp(7)). It need not be aligned.
            let bytes = unsafe { data.cast::<libc::c_int>().read_unaligned() };
            one.segment_bytes = usize::try_from(bytes).unwrap_or(one.bytes);
        }
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
            // SAFETY: the kernel gives a timespec (socket(7)). It need not be aligned.
            let at = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            let (s, ns) = (u64::try_from(at.tv_sec), u64::try_from(at.tv_nsec));
            one.at_ns = s.ok().zip(ns.ok()).map(|(s, ns)| s.saturating_mul(1_000_000_000).saturating_add(ns));
        }
        _ => {}
    }
}

/// Returns the processor time that this process has used, user and system, seconds.
pub fn cpu_seconds() -> f64 {
    // SAFETY: rusage is plain data for which zero is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Sizes of an interface's rings, packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Present size of the receive ring.
    pub rx: u32,
    /// Largest possible size of the receive ring.
    pub rx_max: u32,
    /// Present size of the transmit ring.
    pub tx: u32,
    /// Largest possible size of the transmit ring.
    pub tx_max: u32,
}

/// Work on packets that a network card, or the kernel just before it, does for many packets at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// Checksums of received packets (ETHTOOL_GRXCSUM, include/uapi/linux/ethtool.h).
    RxChecksum = 0x14,
    /// Checksums of sent packets (ETHTOOL_GTXCSUM).
    TxChecksum = 0x16,
    /// Packets gathered from pieces of memory (ETHTOOL_GSG).
    ScatterGather = 0x18,
    /// Segmentation of TCP in the card (ETHTOOL_GTSO).
    Tso = 0x1e,
    /// Segmentation just before the card (ETHTOOL_GGSO).
    Gso = 0x23,
    /// Received packets put together (ETHTOOL_GGRO).
    Gro = 0x2b,
}

/// Reads the sizes of an interface's rings (ETHTOOL_GRINGPARAM).
///
/// # Errors
/// There is no such interface, or its driver has no such command.
pub fn rings(interface: &str) -> io::Result<Rings> {
    const GRINGPARAM: u32 = 0x10;
    // struct ethtool_ringparam: cmd; the most of rx, rx_mini, rx_jumbo, tx; then what is now.
    let [_, rx_max, _, _, tx_max, rx, _, _, tx] = ethtool(interface, [GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(Rings { rx, rx_max, tx, tx_max })
}

/// Whether an interface has an offload switched on.
///
/// # Errors
/// There is no such interface, or its driver has no such command.
pub fn offload(interface: &str, what: Offload) -> io::Result<bool> {
    // struct ethtool_value; the length is that of struct ethtool_ringparam, which is more than enough.
    ethtool(interface, [what as u32, 0, 0, 0, 0, 0, 0, 0, 0]).map(|answer| answer[1] != 0)
}

/// Sends an ethtool command to an interface's driver and returns its answer (SIOCETHTOOL, `netdevice(7)`). Of the commands
/// used here, ETHTOOL_GRINGPARAM has the longest answer: nine words.
fn ethtool(interface: &str, mut words: [u32; 9]) -> io::Result<[u32; 9]> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // SAFETY: ifreq is plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the name ends with a zero, and `words` outlives the call and holds any of the answers asked for.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) })?;
    Ok(words)
}
