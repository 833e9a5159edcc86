//! Sets up links, addresses, routes and queues over rtnetlink, in the network namespace of the calling thread.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::step::{Doing, Fallible};
use crate::job::QueueTotals;

/// `TCA_OPTIONS` (include/uapi/linux/rtnetlink.h).
const TCA_OPTIONS: u16 = 2;

/// A queueing discipline to install: its kind, and its options packed as the kernel's structures.
pub(super) struct Qdisc {
    pub(super) kind: &'static str,
    pub(super) options: Vec<u8>,
}

/// An rtnetlink connection to the kernel.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
    indices: HashMap<String, u32>,
    buffer: Vec<u8>,
}

impl Netlink {
    pub(super) fn open() -> Fallible<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE).doing(|| "opening netlink".into())?;
        socket.bind_auto().doing(|| "binding netlink".into())?;
        socket.connect(&SocketAddr::new(0, 0)).doing(|| "connecting netlink".into())?;
        Ok(Netlink { socket, sequence: 0, indices: HashMap::new(), buffer: Vec::with_capacity(32 << 10) })
    }

    /// Sends a request; returns the messages before its acknowledgement or the end of the dump.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<Vec<RouteNetlinkMessage>, String> {
        let mut packet = NetlinkMessage::from(message);
        self.sequence += 1;
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let mut bytes = vec![0; packet.header.length as usize];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(|e| e.to_string())?;
        let mut answers = Vec::new();
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0).map_err(|e| e.to_string())?;
            let mut rest = self.buffer.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(|e| e.to_string())?;
                let length = (answer.header.length as usize).div_ceil(4) * 4;
                rest = rest.get(length..).unwrap_or_default();
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io().to_string()),
                    _ => {}
                }
            }
        }
    }

    fn create(&mut self, message: RouteNetlinkMessage, what: impl FnOnce() -> String) -> Fallible<()> {
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).doing(what).map(drop)
    }

    /// Returns the number of a link of this namespace.
    pub(super) fn index(&mut self, name: &str) -> Fallible<u32> {
        if let Some(index) = self.indices.get(name) {
            return Ok(*index);
        }
        let index = nix::net::if_::if_nametoindex(name).doing(|| format!("finding link {name}"))?;
        self.indices.insert(name.to_owned(), index);
        Ok(index)
    }

    fn change(&mut self, name: &str, attributes: Vec<LinkAttribute>, flags: LinkFlags) -> Fallible<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.flags = flags;
        message.header.change_mask = flags;
        message.attributes = attributes;
        self.ask(RouteNetlinkMessage::SetLink(message), NLM_F_ACK).doing(|| format!("setting up link {name}")).map(drop)
    }

    /// Brings a link up.
    pub(super) fn up(&mut self, name: &str) -> Fallible<()> {
        self.change(name, Vec::new(), LinkFlags::Up)
    }

    /// Limits segmentation offload on a link to one packet at a time.
    pub(super) fn one_segment_at_a_time(&mut self, name: &str) -> Fallible<()> {
        self.change(name, vec![LinkAttribute::GsoMaxSegs(1)], LinkFlags::empty())
    }

    /// Makes a pair of joined links; the far one is in another namespace.
    pub(super) fn veth(&mut self, near: &Plug, far: &Plug, namespace: RawFd, mtu: u32) -> Fallible<()> {
        let attributes = |plug: &Plug| {
            vec![
                LinkAttribute::IfName(plug.name.to_owned()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::Address(plug.hardware().to_vec()),
            ]
        };
        let mut peer = LinkMessage::default();
        peer.attributes = attributes(far);
        peer.attributes.push(LinkAttribute::NetNsFd(namespace));
        let mut message = LinkMessage::default();
        message.attributes = attributes(near);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(message), || format!("making link {}", near.name))
    }

    /// Gives a link its address, brings it up, and enters its neighbour. So ARP, whose answers would take a round trip, is not
    /// needed.
    pub(super) fn plug(&mut self, plug: &Plug, neighbour: &Plug) -> Fallible<()> {
        let index = self.index(plug.name)?;
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 24;
        message.header.index = index;
        message.attributes =
            vec![AddressAttribute::Local(plug.address.into()), AddressAttribute::Address(plug.address.into())];
        self.create(RouteNetlinkMessage::NewAddress(message), || format!("giving {} its address", plug.name))?;
        self.up(plug.name)?;
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(neighbour.address)),
            NeighbourAttribute::LinkLayerAddress(neighbour.hardware().to_vec()),
        ];
        self.create(RouteNetlinkMessage::NewNeighbour(message), || format!("telling {} its neighbour", plug.name))
    }

    /// Routes packets for a network to a gateway; `None` is the default route.
    /// `initcwnd` is the initial congestion window of connections on this route, segments.
    pub(super) fn route(
        &mut self,
        network: Option<Ipv4Addr>,
        gateway: Ipv4Addr,
        initcwnd: Option<u32>,
    ) -> Fallible<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = 254;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
        if let Some(network) = network {
            message.header.destination_prefix_length = 24;
            message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(network)));
        }
        if let Some(segments) = initcwnd {
            message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::InitCwnd(segments)]));
        }
        self.create(RouteNetlinkMessage::NewRoute(message), || format!("routing by {}", IpAddr::V4(gateway)))
    }

    /// Installs a queueing discipline at the root of a link, or changes the one that is there, which is of the same kind.
    pub(super) fn qdisc(&mut self, link: &str, qdisc: &Qdisc) -> Fallible<()> {
        let mut message = TcMessage::with_index(self.index(link)? as i32);
        message.header.family = AddressFamily::Unspec;
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![
            TcAttribute::Kind(qdisc.kind.to_owned()),
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, qdisc.options.clone())),
        ];
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .doing(|| format!("putting {} on link {link}", qdisc.kind))
            .map(drop)
    }

    /// Returns the totals of a link's root queue, and the bytes in it now.
    pub(super) fn queue(&mut self, link: &str) -> Fallible<(QueueTotals, u32)> {
        let index = self.index(link)? as i32;
        let message = TcMessage::with_index(index);
        let answers =
            self.ask(RouteNetlinkMessage::GetQueueDiscipline(message), NLM_F_DUMP).doing(|| "reading queues".into())?;
        let mut totals = QueueTotals::default();
        let mut backlog = 0;
        for answer in answers {
            let RouteNetlinkMessage::NewQueueDiscipline(answer) = answer else { continue };
            if answer.header.index != index || answer.header.parent != TcHandle::ROOT {
                continue;
            }
            for attribute in answer.attributes {
                let TcAttribute::Stats2(stats) = attribute else { continue };
                for stat in stats {
                    match stat {
                        TcStats2::Basic(basic) => {
                            totals.bytes = basic.bytes;
                            totals.packets = basic.packets;
                        }
                        TcStats2::Queue(queue) => {
                            totals.drops = queue.drops;
                            backlog = queue.backlog;
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok((totals, backlog))
    }
}

/// A queueing discipline that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledQdisc {
    /// Number of the link that it belongs to.
    pub link: u32,
    /// Its kind, for example `fq`.
    pub kind: String,
    /// Whether it is the root of its link, and not a child.
    pub root: bool,
}

/// Returns all queueing disciplines of the calling thread's network namespace. This needs no permission.
///
/// # Errors
/// The kernel has no netlink, or does not answer; the text says which.
pub fn installed_qdiscs() -> Result<Vec<InstalledQdisc>, String> {
    let mut netlink = Netlink::open()?;
    let all = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let answers = netlink.ask(all, NLM_F_DUMP).doing(|| "reading queues".into())?;
    let one = |answer| {
        let RouteNetlinkMessage::NewQueueDiscipline(answer) = answer else { return None };
        let kind = answer.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        })?;
        Some(InstalledQdisc { link: answer.header.index as u32, kind, root: answer.header.parent == TcHandle::ROOT })
    };
    Ok(answers.into_iter().filter_map(one).collect())
}

/// One side of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plug {
    pub(super) name: &'static str,
    pub(super) address: Ipv4Addr,
}

impl Plug {
    /// Returns a locally administered hardware address, made from the IPv4 address.
    fn hardware(&self) -> [u8; 6] {
        let [a, b, c, d] = self.address.octets();
        [2, 0, a, b, c, d]
    }
}
