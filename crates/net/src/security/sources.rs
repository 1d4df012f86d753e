use super::floor;
use super::keyfile::{KeyError, KeyFile, Kind};
use super::keys::{Keys, member_id};
use super::roster::{Roster, RosterError};
use super::term::Term;
use crate::clock;
use crate::tap;
use serde::Serialize;
use starhop_proto::peer::Member;
use starhop_proto::security::Algorithm;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// No host's clock has a reason to show an earlier time than this program's year (2026-01-01, UTC).
pub(super) const FIRST_YEAR: u64 = 1_767_225_600;

/// The source of a node's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sources {
    /// Nowhere: packets are plain.
    Insecure,
    /// Files.
    Files {
        /// The domain's key, or the node's.
        key: PathBuf,
        /// The nodes that a node with a key of its own speaks to.
        roster: Option<PathBuf>,
        /// The cipher that seals; `None` is the fastest of this processor. Neighbours open all of them.
        cipher: Option<Algorithm>,
    },
}

/// The protection of a node's packets, for status and events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Security {
    /// `sealed` or `plain`.
    pub packets: &'static str,
    /// The name of the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The id of the key that seals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The cipher that seals; neighbours may seal with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<&'static str>,
    /// Which roster is believed, and until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roster: Option<Term>,
}

/// A reason why keys are not available.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The key file is at fault.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The roster is.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// A node's key is of no use alone.
    #[error("`{}` is one node's own key: say with --roster FILE whom the node speaks to", .0.display())]
    RosterMissing(PathBuf),
    /// A domain's key needs no roster.
    #[error("`{}` is a domain's key, which needs no roster; leave --roster out", .0.display())]
    RosterUseless(PathBuf),
    /// The node's file does not name the authority of rosters.
    #[error("`{}` names no authority: make the key with `starhop key new --node --authority PUBLIC`", .0.display())]
    AuthorityMissing(PathBuf),
    /// The clock was never set.
    #[error(
        "this host's clock says {0} s since 1970, which is before 2026: keys change with the time, and neighbours \
         would refuse every packet. Set the clock (chrony, ntpd, GPS) and start again"
    )]
    Clock(u64),
}

/// Keys, their description, and the names of their owners: all of one reading of the files.
pub(super) struct Loaded {
    /// The keys.
    pub(super) keys: Keys,
    /// Their description.
    pub(super) security: Security,
    /// The names of their owners, where each has keys of its own.
    pub(super) names: BTreeMap<Member, String>,
}

impl Sources {
    /// Reads the files; `None` where packets are plain.
    ///
    /// # Errors
    /// [`ReloadError`] says which file is at fault and why.
    pub(super) fn load(&self) -> Result<Option<Loaded>, ReloadError> {
        let Sources::Files { key: path, roster, cipher } = self else {
            tap::set_passes(None);
            return Ok(None);
        };
        let file = KeyFile::load(path)?;
        let (keys, term, names) = match (file.kind(), roster) {
            (Kind::Domain, None) => (Keys::domain(&file), None, BTreeMap::new()),
            (Kind::Domain, Some(_)) => return Err(ReloadError::RosterUseless(path.clone())),
            (Kind::Node, None) => return Err(ReloadError::RosterMissing(path.clone())),
            (Kind::Node, Some(roster)) => {
                let (keys, term, names) = pairwise(&file, path, roster)?;
                (keys, Some(term), names)
            }
        };
        let keys = match cipher {
            Some(cipher) => keys.with_algorithm(*cipher),
            None => keys,
        };
        tap::set_passes(Some(file.passes()));
        let id = file.ids().find(|(_, seals, _)| *seals).map(|(id, ..)| id);
        let security = Security {
            packets: "sealed",
            domain: Some(file.domain().to_owned()),
            key: id,
            cipher: Some(keys.algorithm().name()),
            roster: term,
        };
        Ok(Some(Loaded { keys, security, names }))
    }
}

fn pairwise(
    file: &KeyFile,
    path: &Path,
    roster_path: &Path,
) -> Result<(Keys, Term, BTreeMap<Member, String>), ReloadError> {
    let roster = Roster::load(roster_path)?;
    if roster.domain() != file.domain() {
        let (roster, key) = (roster.domain().to_owned(), file.domain().to_owned());
        return Err(RosterError::Domain { roster, key }.into());
    }
    let authority = file.authority.ok_or_else(|| ReloadError::AuthorityMissing(path.to_owned()))?;
    roster.verify(&authority, clock::unix_nanos() / 1_000_000_000)?;
    floor::check(roster_path, &roster, &authority)?;
    let names = roster.members().iter().map(|member| (member_id(&member.name), member.name.clone()));
    Ok((Keys::pairwise(file, &roster)?, roster.term(), names.collect()))
}
