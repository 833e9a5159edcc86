//! Resolves sources and destinations as they were typed, at either end, and chooses how far names below them may lead
//! ([`Within`]).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::unistd::{AccessFlags, faccessat};

use crate::error::{TransferError, local, why};
use crate::fs::root::{Root, Within};
use crate::fs::symlinks::{LinkOwner, MAX_LINKS};
use crate::fs::{at, publish, users};
use crate::protocol::message::{Options, Sources, Target};
use crate::protocol::name::{Name, number, printable};
use crate::receive::delete::Rules;
use crate::receive::dry_run::DryRun;
use crate::receive::{Destination, cannot_write};
use crate::source::exclude::Exclude;
use crate::source::glob::{self, Part};
use crate::source::name_list::NameList;
use crate::source::tree::SourceTree;
use crate::source::walk::{LEADS_NOWHERE, leads_nowhere};

/// Most patterns in one command, since each may read many folders.
const MAX_PATTERNS: usize = 256;

/// The part of the file system that an end may use.
#[derive(Debug, Clone)]
pub enum Realm {
    /// All that the user may use. Relative names start at this folder.
    User(PathBuf),
    /// Only what lies below a folder of a server.
    Below(Base),
}

/// The folder that a client of a server is limited to: the server's folder, or one below it.
#[derive(Debug, Clone)]
pub struct Base {
    /// The server's folder, held open, so that it stays the same even if its path leads elsewhere later.
    root: Arc<Root>,
    /// The absolute path of the server's folder, without symbolic links, as it was when the folder was opened.
    path: PathBuf,
    /// The path of the client's folder, relative to the server's; empty if they are the same.
    folder: PathBuf,
}

impl Base {
    /// Opens a server's folder.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(path: &Path) -> std::io::Result<Base> {
        let root = Arc::new(Root::open(path, Within::Beneath)?);
        Ok(Base { root, path: std::fs::canonicalize(path)?, folder: PathBuf::new() })
    }

    /// Takes the server's folder from another process of the same server.
    pub fn received(root: OwnedFd, path: PathBuf) -> Base {
        Base { root: Arc::new(Root::from_fd(root, Within::Beneath)), path, folder: PathBuf::new() }
    }

    /// The server's folder, to hand it to another process of the server or to confine one to it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The absolute path of the server's folder, without symbolic links, as it was when the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Limits the client to a folder with this absolute path, which has no symbolic links. Returns `None` if that folder is
    /// not below the server's.
    pub fn within(&self, folder: &Path) -> Option<Base> {
        let folder = folder.strip_prefix(&self.path).ok()?.to_owned();
        Some(Base { folder, ..self.clone() })
    }

    /// Whether the server's folder was removed. A folder that has its path now is another one.
    pub fn is_removed(&self) -> bool {
        nix::sys::stat::fstat(self.as_fd()).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Checks that the client's folder can be opened.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        self.root().map(drop)
    }

    /// Opens the client's folder. No symbolic link is followed on the way from the server's folder: another user may have
    /// put one there that leads to somebody else's folder.
    fn root(&self) -> std::io::Result<Root> {
        let mut at = self.root.again(Within::Beneath)?;
        for part in self.folder.components() {
            let how = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
            at = Root::from_fd(at.open_at(part.as_ref(), how, 0)?, Within::Beneath);
        }
        Ok(at)
    }
}

/// The name that a source gets at the destination: its last component. Returns `None` if that is no name, as in `a/.`,
/// `..`, `~/` or `/`: then the content of the folder goes to the destination itself.
pub fn last(source: &[u8]) -> Option<&[u8]> {
    let end = source.iter().rposition(|b| *b != b'/')?;
    let last = source[..=end].rsplit(|b| *b == b'/').next()?;
    // Anywhere else, `~` is an ordinary name.
    let is_home = &source[..=end] == b"~";
    if is_home || matches!(last, b"." | b"..") { None } else { Some(last) }
}

/// The number of a transfer: a hash of hosts, sources and destination. It is the same in every run, and does not depend on
/// redundant slashes. Transfers with extended attributes or access control lists have another number, since files that were
/// copied without them are not done.
pub fn transfer(hosts: &str, sources: &[Vec<u8>], to: &[u8], xattrs: bool, acls: bool) -> u64 {
    let mut hasher = blake3::Hasher::new();
    let to = plain(to);
    // The content of a folder is another source than the folder itself.
    let sources: Vec<Vec<u8>> = sources
        .iter()
        .map(|source| [&plain(source)[..], if last(source).is_none() { b"/." } else { b"" }].concat())
        .collect();
    for part in [hosts.as_bytes(), &to].into_iter().chain(sources.iter().map(Vec::as_slice)) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    if xattrs {
        hasher.update(b"xattrs");
    }
    if acls {
        hasher.update(b"acls");
    }
    number(&hasher.finalize())
}

/// The number of a transfer that is limited to a list of names: another list is another transfer. `transfer` is the number that it
/// has without a list.
pub fn limited(transfer: u64, list: &NameList) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&transfer.to_le_bytes());
    for part in list.parts() {
        hasher.update(part);
    }
    number(&hasher.finalize())
}

/// Whether a path is a folder's, or of something below it, as far as their names show.
pub fn is_within(path: &[u8], folder: &[u8]) -> bool {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> { path.split(|b| *b == b'/').map(<[u8]>::to_vec).collect() };
    let (path, folder) = (plain(path), plain(folder));
    let is_up = |path: &[u8]| parts(path).iter().any(|part| part == b"..");
    let is_absolute = |path: &[u8]| path.starts_with(b"/");
    !is_up(&path)
        && !is_up(&folder)
        && is_absolute(&path) == is_absolute(&folder)
        && (folder.is_empty() || folder == b"/" || parts(&path).starts_with(&parts(&folder)))
}

/// A path without redundant slashes and `.` components.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    let root: &[u8] = match (path, &parts[..]) {
        ([b'/', ..], _) => b"/",
        // A folder named `~`, not the home directory.
        ([b'.', ..], [[b'~', ..], ..]) => b"./",
        _ => b"",
    };
    [root, &parts.join(&b'/')].concat()
}

/// The path that a user of this end means by a name as typed.
fn resolve(path: &[u8], base: &Path) -> PathBuf {
    let home = || std::env::var_os("HOME").map_or_else(|| base.to_owned(), PathBuf::from);
    match path {
        b"~" | b"" => home(),
        [b'~', b'/', rest @ ..] => {
            home().join(OsStr::from_bytes(&rest[rest.iter().take_while(|b| **b == b'/').count()..]))
        }
        _ => base.join(OsStr::from_bytes(path)),
    }
}

/// Whether a name as typed starts at the current folder.
pub(crate) fn is_relative(path: &[u8]) -> bool {
    !matches!(path, b"" | b"~" | [b'/', ..] | [b'~', b'/', ..])
}

/// The name below a server's folder that a client means by a path. A path that leads out of the folder is refused here,
/// and again by the kernel when it is opened.
fn below(path: &[u8]) -> Result<Option<Name>, TransferError> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.is_empty() {
        return Ok(None);
    }
    let name = Name::try_from(parts.join(&b'/'));
    name.map(Some).map_err(|e| TransferError::Usage(format!("{}: {e}", printable(path))))
}

/// Checks that sources that are to be removed are one. Of several, the first that has a name is copied, and once it is removed
/// another would take its place.
///
/// # Errors
/// There are several.
pub(crate) fn check_removed(places: &[SourceTree], options: &Options) -> Result<(), TransferError> {
    if options.remove_sources && places.len() > 1 {
        let why = "--remove-source-files takes one source; copy the others with commands of their own";
        return Err(TransferError::Usage(why.to_owned()));
    }
    Ok(())
}

/// Resolves sources as typed. No two of them may have the same name at the other end.
///
/// # Errors
/// A source leads out of the realm, does not exist, or is a pattern that nothing matches; or two have the same name.
pub(crate) fn places(realm: &Realm, sources: &Sources) -> Result<Vec<SourceTree>, TransferError> {
    let exclude = Arc::new(Exclude::new(&sources.filter)?);
    let mut folders = Folders::default();
    let (mut places, mut patterns) = (Vec::new(), 0);
    for path in &sources.paths {
        let there = place(realm, path, &mut folders);
        let several = sources.paths.len() > 1;
        let there = there.and_then(|place| exists(&place.root, &place.path, path, several).map(|()| place));
        match there {
            Err(_) if sources.patterns && glob::is_one(path) => {
                patterns += 1;
                if patterns > MAX_PATTERNS {
                    return Err(TransferError::Usage(format!("give at most {MAX_PATTERNS} patterns")));
                }
                let open = |folder: &[u8]| opened(realm, folder);
                let room = glob::MOST_NAMES.saturating_sub(places.len());
                for found in glob::expand(path, room, &open)? {
                    places.push(match found {
                        Ok(path) => place(realm, &path, &mut folders)?,
                        Err(error) => SourceTree { error: Some(error), ..place(realm, b"/", &mut folders)? },
                    });
                }
            }
            there => places.push(there?),
        }
    }
    for place in &mut places {
        place.exclude = exclude.clone();
    }
    let mut known = std::collections::HashSet::new();
    match places.iter().filter_map(|place| place.top.as_ref()).find(|top| !known.insert(top.bytes())) {
        None => {
            crate::source::tree::OverlappingSources::introduce(&mut places)?;
            Ok(places)
        }
        Some(top) => {
            Err(TransferError::Usage(format!("two sources are called {top}; copy them into folders of their own")))
        }
    }
}

/// The folder that was opened last. Many sources lie in the same folder, and a process has few descriptors.
#[derive(Default)]
struct Folders(Option<(PathBuf, Arc<Root>)>);

impl Folders {
    fn open(
        &mut self,
        folder: PathBuf,
        open: impl FnOnce(&Path) -> std::io::Result<Root>,
    ) -> std::io::Result<Arc<Root>> {
        if let Some((_, root)) = self.0.as_ref().filter(|(known, _)| *known == folder) {
            return Ok(root.clone());
        }
        let root = Arc::new(open(&folder)?);
        self.0 = Some((folder, root.clone()));
        Ok(root)
    }
}

/// Opens a folder in which a pattern is expanded.
fn opened(realm: &Realm, folder: &[u8]) -> std::io::Result<Root> {
    match realm {
        Realm::User(base) if folder.is_empty() => Root::open(base, Within::Anywhere),
        Realm::User(base) => Root::open(&resolve(folder, base), Within::Anywhere),
        Realm::Below(base) => {
            let name = below(folder).map_err(std::io::Error::other)?;
            base.root()?.below(name.as_ref().map_or_else(|| Path::new("."), Name::path))
        }
    }
}

/// Resolves one source as typed, without checking that it exists.
fn place(realm: &Realm, path: &[u8], folders: &mut Folders) -> Result<SourceTree, TransferError> {
    let last = last(path);
    let top = last.and_then(|last| Name::try_from(last.to_vec()).ok());
    let failed = |e: std::io::Error| match e.raw_os_error() {
        // The same message as for a file that cannot be opened in a folder that exists.
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP | libc::ENAMETOOLONG) => {
            TransferError::Usage(format!("{}: {}", printable(path), why(&e)))
        }
        _ => local(format!("cannot open {}", printable(path)))(e),
    };
    let (root, path) = match realm {
        Realm::User(base) => {
            let whole = resolve(path, base);
            let (folder, rest) = match last {
                Some(last) => (
                    whole.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned),
                    PathBuf::from(OsStr::from_bytes(last)),
                ),
                None => (whole, PathBuf::new()),
            };
            (folders.open(folder, |folder| Root::open(folder, Within::Anywhere)).map_err(failed)?, rest)
        }
        Realm::Below(base) => {
            let rest = below(path)?.map_or_else(PathBuf::new, |name| name.path().to_owned());
            (folders.open(base.path.join(&base.folder), |_| base.root()).map_err(failed)?, rest)
        }
    };
    Ok(SourceTree {
        root,
        path,
        top,
        exclude: Arc::default(),
        list: None,
        error: None,
        id: OnceLock::new(),
        overlaps: None,
    })
}

/// Checks that a source exists. `shown` is its name as typed. A link that leads nowhere is left to the walk, which reports it, if
/// there are `several` sources: a shell's pattern may have found it.
fn exists(root: &Root, path: &Path, shown: &[u8], several: bool) -> Result<(), TransferError> {
    let Err(e) = root.open_at(path, OFlag::O_PATH, 0) else { return Ok(()) };
    let why = match e.raw_os_error() {
        _ if leads_nowhere(root, path, &e) && several => return Ok(()),
        _ if leads_nowhere(root, path, &e) => LEADS_NOWHERE.to_owned(),
        // The other end has no shell that would have expanded the pattern.
        Some(libc::ENOENT) if glob::is_one(shown) => {
            format!("{}; patterns are expanded at the far end only, and where DST is a folder (DST/)", why(&e))
        }
        _ => why(&e),
    };
    Err(TransferError::Usage(format!("{}: {why}", printable(shown))))
}

/// Follows the symbolic links at the end of a destination's path, so that a file is written to where they lead, as by `cp`
/// and scp. `folder` is the folder of the path and `name` its last component; `open` opens further folders. A link of another
/// user is followed only to what is that user's ([`LinkOwner`]).
///
/// # Errors
/// A link leads to nothing, to where it must not lead, or through `/proc`, whose links are no paths.
fn through_links(
    folder: std::io::Result<Root>,
    name: &OsStr,
    path: &Path,
    open: &dyn Fn(&Path) -> std::io::Result<Root>,
) -> std::io::Result<(std::io::Result<Root>, Option<Vec<u8>>)> {
    let Ok(mut folder) = folder else { return Ok((folder, Some(name.as_bytes().to_vec()))) };
    let (mut name, mut path) = (name.to_owned(), path.to_owned());
    let mut owners: Vec<LinkOwner> = Vec::new();
    let mut followed = 0;
    loop {
        let stat = match at::look(&folder, Path::new(&name)) {
            Err(e) if followed > 0 && e.kind() == std::io::ErrorKind::NotFound => {
                let why = "it is a symbolic link to a file that does not exist; remove the link, or name that file";
                return Err(std::io::Error::other(why));
            }
            stat => stat.ok(),
        };
        let Some(link) = stat.filter(is_link) else {
            if let Some(stat) = &stat {
                owners.iter().try_for_each(|owner| owner.check(stat))?;
            }
            return Ok((Ok(folder), Some(name.into_vec())));
        };
        followed += 1;
        if followed > MAX_LINKS {
            return Err(nix::errno::Errno::ELOOP.into());
        }
        if nix::sys::statfs::fstatfs(&folder).is_ok_and(|fs| fs.filesystem_type() == nix::sys::statfs::PROC_SUPER_MAGIC)
        {
            let why = "it leads to an open file of a process, by way of /proc; name a file";
            return Err(std::io::Error::other(why));
        }
        owners.extend(LinkOwner::of(&link, &name));
        let target = PathBuf::from(nix::fcntl::readlinkat(&folder, Path::new(&name))?);
        path = path.parent().unwrap_or(Path::new("")).join(target);
        let Some(last) = path.file_name() else { return Err(nix::errno::Errno::EISDIR.into()) };
        name = last.to_owned();
        folder = open(path.parent().unwrap_or(Path::new("")))?;
    }
}

fn is_link(stat: &FileStat) -> bool {
    at::kind(stat) == SFlag::S_IFLNK
}

/// Resolves a destination as typed, opens it and locks it. `gone` says whether the client has gone, which ends the waiting
/// for the lock.
///
/// # Errors
/// A file stands where a folder is needed, the folder does not exist or cannot be written to, or another transfer holds it.
pub fn destination(realm: &Realm, target: &Target, gone: &dyn Fn() -> bool) -> Result<Destination, TransferError> {
    let shown = printable(&target.path);
    // Before a folder is made.
    let changes = users::resolve(&target.changes, matches!(realm, Realm::Below(_)))?;
    let Some((root, rename)) = open_destination(realm, target, true)? else {
        return Err(TransferError::Usage(format!("destination {shown}: it does not exist")));
    };
    let mut to = Destination::open(root, rename, target, &shown, gone)?;
    to.change(changes);
    if matches!(realm, Realm::User(_)) {
        to.sees_all();
    }
    Ok(to)
}

/// Resolves a destination for a dry run, which changes nothing there.
///
/// # Errors
/// Those of [`destination`], as far as they show without a change.
pub(crate) fn dry_run(realm: &Realm, target: &Target, options: Options) -> Result<DryRun, TransferError> {
    let to = open_destination(realm, target, false)?;
    if let Some((root, rename)) = &to {
        let shown = printable(&target.path);
        writable(root).map_err(local(cannot_write(&shown, rename.is_some())))?;
    } else if let Some(above) = above(realm, &target.path) {
        writable(&above).map_err(local(format!("cannot make folder {}", printable(&target.path))))?;
    }
    let rules = target.delete.as_ref().map(|deletion| Rules::new(deletion, target.content)).transpose()?;
    Ok(DryRun::new(to, rules, target.transfer, options))
}

/// Whether this user may make something in a folder.
fn writable(folder: &Root) -> std::io::Result<()> {
    let folder = folder.open_at(Path::new("."), OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
    Ok(faccessat(&folder, ".", AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
}

/// The last folder on the way to a destination that exists, in which the others would be made.
fn above(realm: &Realm, path: &[u8]) -> Option<Root> {
    let mut path = path;
    loop {
        let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
        let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        path = if start == 1 { b"/" } else { path[..start].strip_suffix(b"/").unwrap_or(b"") };
        match opened(realm, path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !path.is_empty() && path != b"/" => {}
            found => return found.ok(),
        }
    }
}

/// Makes a destination accept only the names that were asked for: the sender is not trusted to send nothing else. If only the
/// content of a folder is copied, its names are not known, so any name is accepted.
pub(crate) fn expect(to: &mut Destination, sources: &Sources) {
    let tops: Option<Vec<&[u8]>> = sources.paths.iter().map(|source| last(source)).collect();
    if let Some(tops) = tops {
        // A text that is no valid pattern may still be a name.
        let pattern = |top: &[u8]| Part::new(top).ok().filter(|_| sources.patterns);
        to.only(tops.into_iter().map(|top| pattern(top).unwrap_or_else(|| Part::exactly(top))).collect());
    }
}

/// The folder of a destination, and the name that the one source gets there, if that is another name.
type FolderAndName = (Root, Option<Vec<u8>>);

/// Opens the folder of a destination. Returns `None` if it does not exist, and may not be made.
fn open_destination(realm: &Realm, target: &Target, make: bool) -> Result<Option<FolderAndName>, TransferError> {
    let shown = printable(&target.path);
    let is_folder_needed = target.folder || target.content;
    let wrong = |why: &str| TransferError::Usage(format!("destination {shown}: {why}"));
    // If an earlier attempt made a folder under this very name, the name still stands for that folder, not for a place in
    // it.
    let goes_on = |parent: &Root, is_folder: bool| {
        !is_folder_needed && (target.exact && is_folder || Destination::begun(parent, target.transfer))
    };
    let (root, rename) = match realm {
        Realm::User(base) => {
            let path = resolve(&target.path, base);
            let parent = path.parent().and_then(|parent| Root::open(parent, Within::Anywhere).ok());
            if let (Some(parent), Some(name)) =
                (parent.filter(|parent| goes_on(parent, path.is_dir())), path.file_name())
            {
                (Ok(parent), Some(name.as_bytes().to_vec()))
            } else if path.is_dir() {
                (Root::open(&path, Within::Anywhere), None)
            } else if is_folder_needed {
                if path.exists() {
                    return Err(wrong("a file stands where a folder is needed"));
                }
                if !make {
                    return Ok(None);
                }
                match std::fs::create_dir_all(&path) {
                    // With a slash after a file's name, the check above does not see the file.
                    Err(e) if matches!(e.raw_os_error(), Some(libc::EEXIST | libc::ENOTDIR)) => {
                        return Err(wrong("a file stands where a folder is needed"));
                    }
                    made => made.map_err(local(format!("cannot make folder {shown}")))?,
                }
                (Root::open(&path, Within::Anywhere), None)
            } else {
                let parent = path.parent().filter(|p| p.is_dir()).ok_or_else(|| wrong("its folder does not exist"))?;
                let name = path.file_name().ok_or_else(|| wrong("it is not a name for a file"))?;
                let parent = Root::open(parent, Within::Anywhere);
                let open = |folder: &Path| Root::open(folder, Within::Anywhere);
                through_links(parent, name, &path, &open).map_err(|e| wrong(&why(&e)))?
            }
        }
        Realm::Below(base) => {
            let root = base.root().and_then(|root| root.again(Within::BeneathOwnLinks));
            let root = root.map_err(local(format!("cannot open {shown}")))?;
            let name = below(&target.path)?;
            let path = name.as_ref().map_or_else(|| Path::new("."), Name::path);
            let rename = name.as_ref().map(|name| name.last().to_vec());
            let parent = name.as_ref().and_then(Name::parent);
            let parent = root.below(parent.as_ref().map_or_else(|| Path::new("."), Name::path));
            match root.below(path) {
                Ok(_) if rename.is_some() && parent.as_ref().is_ok_and(|parent| goes_on(parent, true)) => {
                    (parent, rename)
                }
                Ok(inner) => (Ok(inner), None),
                Err(e) if e.raw_os_error() == Some(libc::ENOTDIR) && is_folder_needed => {
                    return Err(wrong("a file stands where a folder is needed"));
                }
                Err(e) if e.raw_os_error() == Some(libc::EXDEV) => {
                    return Err(wrong("it leads out of the server's folder"));
                }
                Err(_) if is_folder_needed && !make => return Ok(None),
                Err(_) if is_folder_needed => {
                    root.folder_for(name.as_ref(), Mode::from_bits_truncate(0o777))
                        .map_err(local(format!("cannot make folder {shown}")))?;
                    (root.below(path), None)
                }
                Err(_) if parent.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) => {
                    return Err(wrong("its folder does not exist"));
                }
                Err(_) => match rename {
                    None => (parent, None),
                    Some(last) => {
                        let open = |folder: &Path| root.below(folder);
                        through_links(parent, OsStr::from_bytes(&last), path, &open).map_err(|e| wrong(&why(&e)))?
                    }
                },
            }
        }
    };
    let root = root.map_err(local(format!("cannot open {shown}")))?;
    // No name that arrives may lead out of the folder that was named, nor through a link: the copy may have brought it along.
    let root = root.again(Within::BeneathWithoutLinks).map_err(local(format!("cannot open {shown}")))?;
    // Checked before anything is sent. A folder of this name is no error yet: it may be gone when the file arrives.
    if let Some(name) = &rename
        && let Err(e) = publish::may_take(&root, at::part(name))
        && matches!(e.kind(), std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::InvalidFilename)
    {
        return Err(wrong(&why(&e)));
    }
    let is_folder = |name: &[u8]| root.open_at(at::part(name), OFlag::O_PATH | OFlag::O_DIRECTORY, 0).is_ok();
    if target.file && rename.as_deref().is_some_and(is_folder) {
        return Err(wrong("it is a folder; give the name of the new file"));
    }
    Ok(Some((root, rename)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sources_are_called() {
        for content in ["", "/", ".", "./", "..", "a/.", "a/./", "a/../", "~", "~/"] {
            assert_eq!(last(content.as_bytes()), None, "{content}");
        }
        for named in ["b", "b/", "a/b", "a/b//", "/b", "./b", "~/b"] {
            assert_eq!(last(named.as_bytes()), Some(&b"b"[..]), "{named}");
        }
        for (path, relative) in
            [("a", true), ("./~/a", true), ("~a", true), ("~", false), ("~/a", false), ("/a", false)]
        {
            assert_eq!(is_relative(path.as_bytes()), relative, "{path}");
        }
        for tilde in ["./~", "a/~", "~/~/", "/~"] {
            assert_eq!(last(tilde.as_bytes()), Some(&b"~"[..]), "{tilde}");
        }
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        assert_eq!(resolve(b"~//x", Path::new("/base")), home.join("x"));
    }

    #[test]
    fn one_destination_spelled_in_several_ways() {
        let number = |to: &str| transfer("host", &[b"/a".to_vec()], to.as_bytes(), false, false);
        for to in ["in/", "./in", "in//", "in/."] {
            assert_eq!(number(to), number("in"), "{to}");
        }
        for other in ["/in", "in/b", "", "../in", "~/in"] {
            assert!(number(other) != number("in"), "{other}");
        }
        assert_eq!(number("/"), number("//."));
        let from = |source: &str| transfer("host", &[source.as_bytes().to_vec()], b"in", false, false);
        assert!(from("/t") == from("/t/") && from("/t") == from("//./t") && from("/t/.") == from("/t/./"));
        assert!(from("/t") != from("/t/.") && from("/t") != from("t") && from("/") != from("."));
        assert!(number("/") != number("") && number("~/in") != number("./~/in"));
    }

    #[test]
    fn what_is_within_a_folder() {
        for (path, folder) in
            [("t/zz", "t"), ("t", "t/."), ("./t//zz/", "t/"), ("/a/b", "/a"), ("/a", "/"), ("b/c", "")]
        {
            assert!(is_within(path.as_bytes(), folder.as_bytes()), "{path} {folder}");
        }
        for (path, folder) in [("tt", "t"), ("t", "t/zz"), ("t/../u", "t"), ("/t/zz", "t"), ("/a", ""), ("t", "u")] {
            assert!(!is_within(path.as_bytes(), folder.as_bytes()), "{path} {folder}");
        }
    }

    #[test]
    fn each_list_of_names_makes_a_transfer_of_its_own() {
        let number = |transfer, names: &[&[u8]]| limited(transfer, &NameList::new(names.iter().copied()).unwrap());
        assert_eq!(number(7, &[b"a", b"b"]), number(7, &[b"./b", b"a"]));
        for other in [number(7, &[b"a"]), number(7, &[b"ab"]), number(7, &[]), number(8, &[b"a", b"b"]), 7] {
            assert!(other != number(7, &[b"a", b"b"]));
        }
    }
}
