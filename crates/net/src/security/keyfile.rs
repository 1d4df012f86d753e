//! The file with a node's secrets: of the whole domain, or the node's own.

use super::credential;
use super::hex;
use super::secret::Secret;
use crate::sys::replace::replace as replace_file;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The use of the secrets of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Shared by every node of the domain.
    Domain,
    /// One node's X25519 keys; a roster lists the nodes that it speaks to.
    Node,
}

/// Progress of the rotation of a file's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A second key was added. It opens; the first one seals still.
    Added,
    /// The second key seals now; the first one opens still.
    Switched,
    /// The first key is gone.
    Retired,
}

/// The secrets of a domain or of a node: one, or two while they are being rotated.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    pub(super) kind: Kind,
    domain: String,
    /// In which rosters' signatures are checked, of a node's file.
    pub(super) authority: Option<[u8; 32]>,
    pub(super) keys: Vec<Live>,
    /// Which of them seals.
    pub(super) sealing: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Live {
    pub(super) secret: Secret,
    created: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    kind: Kind,
    domain: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    authority: Option<String>,
    key: Vec<WrittenKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    secret: Zeroizing<String>,
    /// Whether packets are sealed with it, or only opened.
    seals: bool,
    /// Seconds since 1970.
    created: u64,
}

const VERSION: u32 = 1;
/// Far more than two keys.
const MAX_LEN: u64 = 16 * 1024;

const ID_CONTEXT: &str = "starhop 2026 key id v1";

const PASS_CONTEXT: &str = "starhop 2026 capture v1";

impl KeyFile {
    /// A new file's content with one fresh secret.
    ///
    /// # Errors
    /// The system has no randomness to give, or the domain's name has the wrong form.
    pub fn new(kind: Kind, domain: &str, authority: Option<[u8; 32]>, unix: u64) -> Result<Self, KeyError> {
        if let Some(problem) = problem_of_domain(domain) {
            return Err(KeyError::Domain { domain: domain.to_owned(), problem });
        }
        let secret = Secret::random().map_err(KeyError::Randomness)?;
        let keys = vec![Live { secret, created: unix }];
        Ok(Self { kind, domain: domain.to_owned(), authority, keys, sealing: 0 })
    }

    /// The use of its secrets.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name of the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// For each key: its public id, whether it seals, and the time when it was made (seconds since 1970).
    pub fn ids(&self) -> impl Iterator<Item = (String, bool, u64)> + '_ {
        self.keys.iter().enumerate().map(|(index, live)| (live.id(), index == self.sealing, live.created))
    }

    /// Goes one step further in the rotation of the key: adds a second one, seals with it, drops the first.
    /// Between two steps every node must have the file.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn rotate(&mut self, unix: u64) -> Result<Step, KeyError> {
        match (self.keys.len(), self.sealing) {
            (1, _) => {
                // Another hint, so that a node that has both never has to try both.
                let mut secret = Secret::random().map_err(KeyError::Randomness)?;
                while hint_of(&secret) == hint_of(&self.keys[0].secret) {
                    secret = Secret::random().map_err(KeyError::Randomness)?;
                }
                self.keys.push(Live { secret, created: unix });
                Ok(Step::Added)
            }
            (_, 0) => {
                self.sealing = 1;
                Ok(Step::Switched)
            }
            _ => {
                self.keys.remove(0);
                self.sealing = 0;
                Ok(Step::Retired)
            }
        }
    }

    /// Reads a file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyError`] names the fault and the remedy.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |cause| KeyError::File { path: path.to_owned(), action: "read", cause };
        let file = std::fs::File::open(path).map_err(failed)?;
        check_private(path, &file)?;
        let text = read_secret(file).map_err(failed)?;
        if is_authority(&text) {
            return Err(KeyError::Authority { path: path.to_owned() });
        }
        Self::parse(&text).map_err(|problem| KeyError::Content { path: path.to_owned(), problem })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// Names the fault, without quoting the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The parser quotes the line at fault, which may contain the secret: only its plain message is used.
        let written: Written = toml::from_str(text).map_err(|error| without_secrets(error.message()))?;
        if written.version != VERSION {
            return Err(format!("its version is {}, this program knows {VERSION}", written.version));
        }
        if let Some(problem) = problem_of_domain(&written.domain) {
            return Err(format!("its domain {problem}"));
        }
        if !(1..=2).contains(&written.key.len()) {
            return Err(format!("it holds {} keys; one or two can be live", written.key.len()));
        }
        let mut sealing = written.key.iter().enumerate().filter(|(_, key)| key.seals);
        let (Some((sealing, _)), None) = (sealing.next(), sealing.next()) else {
            return Err("exactly one key must have `seals = true`".to_owned());
        };
        let authority = match &written.authority {
            Some(text) => Some(super::unhex(text).ok_or("its authority is not 64 hexadecimal digits")?),
            None => None,
        };
        let live = |key: &WrittenKey| {
            let secret = Secret::from_hex(&key.secret).ok_or("a secret is not 64 hexadecimal digits")?;
            Ok::<_, String>(Live { secret, created: key.created })
        };
        let keys = written.key.iter().map(live).collect::<Result<_, _>>()?;
        Ok(Self { kind: written.kind, domain: written.domain, authority, keys, sealing })
    }

    fn to_text(&self) -> Result<Zeroizing<String>, KeyError> {
        let key = |(index, live): (usize, &Live)| WrittenKey {
            secret: live.secret.to_hex(),
            seals: index == self.sealing,
            created: live.created,
        };
        let written = Written {
            version: VERSION,
            kind: self.kind,
            domain: self.domain.clone(),
            authority: self.authority.as_ref().map(|key| hex(key)),
            key: self.keys.iter().enumerate().map(key).collect(),
        };
        let body = Zeroizing::new(
            toml::to_string(&written).map_err(io::Error::other).map_err(KeyError::Randomness)?,
        );
        let whose = match self.kind {
            Kind::Domain => {
                "Shared by all nodes of the domain: whoever has it can read and forge everything there."
            }
            Kind::Node => "One node's own: whoever has it can pass for that node.",
        };
        Ok(Zeroizing::new(format!("# A Starhop key. {whose}\n{}", *body)))
    }

    /// Writes a file that must not exist.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        let text = self.to_text()?;
        write_private(path, &text, false)
    }

    /// Proofs that only a holder of this file can give, one for each of its keys, that of the sealing key first.
    /// They open nothing.
    pub fn passes(&self) -> Vec<blake3::Hash> {
        let pass = |live: &Live| blake3::Hash::from(blake3::derive_key(PASS_CONTEXT, live.secret.bytes()));
        let sealing = self.keys.get(self.sealing).map(pass);
        sealing.into_iter().chain(self.keys.iter().map(pass)).collect()
    }

    /// Replaces a file in one step, so that a node that reloads finds the old or the new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        let text = self.to_text()?;
        write_private(path, &text, true)
    }
}

/// Refuses a file that any user except this process's user and root could have written or read.
pub(super) fn check_private(path: &Path, file: &std::fs::File) -> Result<(), KeyError> {
    let failed = |cause| KeyError::File { path: path.to_owned(), action: "read", cause };
    let meta = file.metadata().map_err(failed)?;
    // If it is no file, such as the descriptor of a pipe, only the giver can read it.
    if !meta.is_file() {
        return Ok(());
    }
    // systemd lets the service's user read a credential by an access list, which shows as the group's right to read.
    let others = if credential::is_one(path) { 0o037 } else { 0o077 };
    if meta.mode() & others != 0 {
        return Err(KeyError::Permissions { path: path.to_owned(), mode: meta.mode() & 0o777 });
    }
    if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyError::Owner { path: path.to_owned(), owner: meta.uid() });
    }
    Ok(())
}

/// Writes a file with mode 0600, in one step.
pub(super) fn write_private(path: &Path, text: &str, replace: bool) -> Result<(), KeyError> {
    let failed = |cause| KeyError::File { path: path.to_owned(), action: "write", cause };
    if !replace {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        return file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed);
    }
    replace_file(path, text.as_bytes(), 0o600).map_err(failed)
}

impl Live {
    /// A public name of a key: a hash of it.
    pub(super) fn id(&self) -> String {
        hex(&id_of(&self.secret)[..4])
    }
}

/// The text of a file with a secret. A text that grew would leave copies of itself where it lay before.
pub(super) fn read_secret(file: std::fs::File) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(MAX_LEN as usize + 1));
    file.take(MAX_LEN).read_to_string(&mut text)?;
    Ok(text)
}

/// A message, without words that may be a secret in a wrong place: parsers quote the names of fields.
fn without_secrets(message: &str) -> String {
    let hide = |word: &str| if word.len() > 16 { "(not shown)".to_owned() } else { word.to_owned() };
    let words = message.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| match word.char_indices().next_back() {
            Some((at, last)) if !last.is_ascii_alphanumeric() => hide(&word[..at]) + &word[at..],
            _ => hide(word),
        })
        .collect()
}

/// Whether a file that begins with `bytes` is a key file of any kind, valid or not.
pub(crate) fn holds_a_secret(bytes: &[u8]) -> bool {
    if bytes.len() as u64 > MAX_LEN {
        return false;
    }
    let table = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let Some(table) = table.filter(|table| table.contains_key("kind")) else { return false };
    let keys = table.get("key").and_then(toml::Value::as_array).into_iter().flatten();
    table.contains_key("secret") || keys.into_iter().any(|key| key.get("secret").is_some())
}

/// Whether a file's text says that it holds an authority's key.
fn is_authority(text: &str) -> bool {
    #[derive(Deserialize)]
    struct OfAnyKind {
        kind: String,
    }
    toml::from_str::<OfAnyKind>(text).is_ok_and(|file| file.kind == "authority")
}

fn id_of(secret: &Secret) -> [u8; 32] {
    blake3::derive_key(ID_CONTEXT, secret.bytes())
}

/// The five bits that packets carry of a secret's id.
pub(super) fn hint_of(secret: &Secret) -> u8 {
    id_of(secret)[0] & 0x0f
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.keys.iter().map(Live::id).collect();
        write!(f, "KeyFile({:?}, {:?}, keys {ids:?})", self.kind, self.domain)
    }
}

/// The reason why `name` cannot be a domain's name, if there is one.
fn problem_of_domain(name: &str) -> Option<&'static str> {
    let is_fine = !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (!is_fine).then_some("must be 1 to 64 letters, digits, `-`, `_` or `.`")
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read or written.
    #[error("cannot {action} the key file `{}`: {cause}{}", .path.display(), hint(.action, .cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// Others may read it.
    #[error(
        "the key file `{}` has mode {mode:04o}: others on this host can read or change it. \
         Make a new key if they may have, then: chmod 600 {0}", .path.display()
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is another user's.
    #[error(
        "the key file `{}` belongs to user {owner}, who can read and change it. Make a new key if that is not wanted, \
         or: chown $(id -u) {0}", .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It holds something else.
    #[error("`{}` is no key file: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// It is an authority's.
    #[error(
        "`{}` is the key of an authority, which signs rosters: no node runs with it. `starhop key new` makes a node's \
         or a domain's", .path.display()
    )]
    Authority {
        /// The file.
        path: PathBuf,
    },
    /// A domain cannot be called so.
    #[error("the domain's name `{domain}` {problem}")]
    Domain {
        /// The name.
        domain: String,
        /// The fault.
        problem: &'static str,
    },
    /// The system's generator failed.
    #[error("no key can be made: {0}")]
    Randomness(io::Error),
}

fn hint(action: &str, cause: &io::Error) -> &'static str {
    match (action, cause.kind()) {
        ("read", io::ErrorKind::NotFound) => "; `starhop key new FILE` makes one",
        ("write", io::ErrorKind::AlreadyExists) => {
            "; it is not overwritten, because nodes may need it. Choose another name, or `starhop key rotate`"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file() -> KeyFile {
        KeyFile::new(Kind::Domain, "home", None, 1_790_000_000).unwrap()
    }

    #[test]
    fn a_key_file_is_read_as_it_was_written_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = file();
        key.create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(KeyFile::load(&path).unwrap() == key);
        let again = key.create(&path).expect_err("it exists").to_string();
        assert!(again.contains("not overwritten"), "{again}");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        file().create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o622] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::load(&path).expect_err("it is open to others").to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:04o}")), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused_with_what_to_do() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: only root can give a file away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (key, authority) = (directory.path().join("key"), directory.path().join("authority"));
        file().create(&key).unwrap();
        crate::security::Authority::new().unwrap().create(&authority).unwrap();
        for path in [&key, &authority] {
            std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
        }
        let errors = [
            KeyFile::load(&key).map(drop).expect_err("it is another's").to_string(),
            crate::security::Authority::load(&authority).map(drop).expect_err("it is another's").to_string(),
        ];
        for error in errors {
            assert!(error.contains("65534") && error.contains("chown"), "{error}");
        }
    }

    #[test]
    fn a_planted_link_beside_a_key_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("key"), directory.path().join("other"));
        let key = file();
        key.create(&path).unwrap();
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("key.new")).unwrap();
        key.replace(&path).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
        assert!(KeyFile::load(&path).unwrap() == key);
    }

    #[test]
    fn what_is_no_key_file_is_refused_and_no_error_shows_a_secret() {
        let text = file().to_text().unwrap().clone();
        let secret = file().keys[0].secret.to_hex();
        let with_secret = format!("version = 1\nkind = \"domain\"\ndomain = \"x\"\nkey = \"{}\"", *secret);
        for (text, reason) in [
            ("", "version"),
            (&text.replace("version = 1", "version = 9"), "version is 9"),
            (&text.replace("seals = true", "seals = false"), "exactly one"),
            (&text.replace("secret = \"", "secret = \"zz"), "64 hexadecimal"),
            (&text.replace("home", "ho me"), "letters"),
            (&with_secret, "expected"),
            (&format!("{} = 1", *secret), "unknown field `(not shown)`"),
        ] {
            let error = KeyFile::parse(text).expect_err(reason);
            assert!(error.contains(reason), "{error} does not say {reason}");
            assert!(!error.contains(&**secret));
        }
        assert!(!format!("{:?}", file()).contains(&*file().keys[0].secret.to_hex()));
    }

    #[test]
    fn a_rotation_takes_three_steps_and_leaves_another_key() {
        let mut key = file();
        let before: Vec<_> = key.ids().collect();
        assert_eq!(key.rotate(1).unwrap(), Step::Added);
        assert_eq!(key.ids().map(|(_, seals, _)| seals).collect::<Vec<_>>(), [true, false]);
        assert_eq!(key.rotate(2).unwrap(), Step::Switched);
        assert_eq!(key.ids().map(|(_, seals, _)| seals).collect::<Vec<_>>(), [false, true]);
        assert_eq!(key.rotate(3).unwrap(), Step::Retired);
        assert_eq!(key.ids().count(), 1);
        assert!(key.ids().next().map(|(id, ..)| id) != before.first().map(|(id, ..)| id.clone()));
    }
}
