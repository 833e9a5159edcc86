//! A node of the path in the guest: a thread in network, UTS and mount namespaces of its own. The thread does all work at the
//! node, and processes that it starts inherit its namespaces.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::netlink::Netlink;
use super::step::{Doing, Fallible};
use super::sysctl;

type Task = Box<dyn FnOnce(&mut Netlink) + Send>;

/// A node: an end, a router, or the source of cross traffic.
pub(super) struct Node {
    tasks: mpsc::Sender<Task>,
    namespace: OwnedFd,
}

impl Node {
    /// Makes a node whose loopback link is up. `private` gives it folders `/tmp` and `/run` of its own.
    pub(super) fn new(name: &'static str, private: bool) -> Fallible<Node> {
        let (tasks, queue) = mpsc::channel::<Task>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(256 << 10)
            .spawn(move || match enter(name, private) {
                Ok((mut netlink, namespace)) => {
                    // The other thread waits for this.
                    let _ = ready.send(Ok(namespace));
                    for task in queue {
                        task(&mut netlink);
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            })
            .doing(|| format!("starting end {name}"))?;
        let namespace = is_ready.recv().doing(|| format!("starting end {name}"))??;
        Ok(Node { tasks, namespace })
    }

    /// Runs a task at the node, and waits for its result.
    pub(super) fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Netlink) -> Fallible<T> + Send + 'static,
    ) -> Fallible<T> {
        let (done, result) = mpsc::channel();
        let task: Task = Box::new(move |netlink| drop(done.send(task(netlink))));
        self.tasks.send(task).doing(|| "reaching an end".into())?;
        result.recv().doing(|| "waiting for an end".into())?
    }

    /// Returns the node's network namespace, for links that lead to it.
    pub(super) fn namespace(&self) -> RawFd {
        self.namespace.as_raw_fd()
    }
}

fn enter(name: &str, private: bool) -> Fallible<(Netlink, OwnedFd)> {
    let mut flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
    if private {
        flags |= CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS;
    }
    unshare(flags).doing(|| format!("making namespaces for end {name}"))?;
    nix::unistd::sethostname(name).doing(|| format!("naming end {name}"))?;
    if private {
        for (at, options) in [("/tmp", "mode=1777"), ("/run", "mode=755")] {
            mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(options))
                .doing(|| format!("mounting {at} of end {name}"))?;
        }
        std::env::set_current_dir("/").doing(|| "entering /".into())?;
    }
    for scope in ["all", "default"] {
        // Everything uses IPv4. IPv6's neighbour discovery would mix its packets with the traffic that is measured.
        sysctl::set(&format!("net/ipv6/conf/{scope}/disable_ipv6"), "1")?;
    }
    let mut netlink = Netlink::open()?;
    netlink.up("lo")?;
    let namespace = File::open("/proc/thread-self/ns/net").doing(|| "opening a namespace".into())?;
    Ok((netlink, namespace.into()))
}
