//! A set of satellites with a common epoch, and which of them are meant to be linked.

use crate::elements::{Orbit, OrbitError};
use crate::time::Epoch;
use crate::walker::{Shell, Slot, Spread};

/// One satellite.
#[derive(Clone, Debug)]
pub struct Satellite {
    /// Its name, unique in the constellation.
    pub name: String,
    /// Its orbit, timed from the constellation's epoch.
    pub orbit: Orbit,
    /// Its place in a shell; `None` if it came from an element set.
    pub slot: Option<Slot>,
    /// The element set that it came from, if it did.
    pub elements: Option<Box<sgp4::Elements>>,
}

/// An inter-satellite link that the design foresees, whether or not it is up at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isl {
    /// The satellite with the lower index.
    pub a: u32,
    /// The satellite with the higher index.
    pub b: u32,
    /// Whether the two fly in different planes.
    pub cross_plane: bool,
}

/// Satellites, their epoch and their inter-satellite links.
#[derive(Clone, Debug)]
pub struct Constellation {
    /// Its name.
    pub name: String,
    /// Time from which seconds are counted.
    pub epoch: Epoch,
    /// The satellites; an index into this list is a satellite's number everywhere in the crate.
    pub satellites: Vec<Satellite>,
    /// The shells it was made from; empty if it came from element sets.
    pub shells: Vec<Shell>,
    /// Foreseen links without duplicates, sorted by the difference of their ends, then by `a`.
    pub isls: Vec<Isl>,
}

impl Constellation {
    /// The satellites of all shells in order, without links.
    ///
    /// # Errors
    /// [`OrbitError::Elements`] if a shell's orbit is impossible.
    pub fn from_shells(name: &str, epoch: Epoch, shells: Vec<Shell>) -> Result<Self, OrbitError> {
        let mut satellites = Vec::new();
        for (number, shell) in (0..).zip(&shells) {
            for plane in 0..shell.planes {
                for index in 0..shell.per_plane {
                    satellites.push(Satellite {
                        name: shell.satellite_name(plane, index),
                        orbit: shell.orbit(epoch, plane, index)?,
                        slot: Some(Slot { shell: number, plane, index }),
                        elements: None,
                    });
                }
            }
        }
        Ok(Self { name: name.to_owned(), epoch, satellites, shells, isls: Vec::new() })
    }

    /// Satellites from TLE or OMM element sets, without links; the epoch is the latest of the sets' unless given.
    ///
    /// # Errors
    /// [`OrbitError::Elements`] if SGP4 refuses a set.
    pub fn from_elements(
        name: &str,
        epoch: Option<Epoch>,
        sets: &[sgp4::Elements],
    ) -> Result<Self, OrbitError> {
        let latest = sets.iter().map(|s| Epoch::from_naive(s.datetime)).max();
        let epoch = epoch.or(latest).unwrap_or_else(Epoch::year_2000);
        let satellite = |set: &sgp4::Elements| {
            let name = set.object_name.clone().unwrap_or_else(|| set.norad_id.to_string());
            let orbit = Orbit::sgp4(&name, set, epoch)?;
            Ok(Satellite { orbit, name, slot: None, elements: Some(Box::new(set.clone())) })
        };
        let satellites = sets.iter().map(satellite).collect::<Result<_, OrbitError>>()?;
        Ok(Self { name: name.to_owned(), epoch, satellites, shells: Vec::new(), isls: Vec::new() })
    }

    /// A satellite's element set: the one that it came from, or the one that its shell's design gives it.
    ///
    /// # Panics
    /// If there is no such satellite.
    pub fn elements(&self, number: u32) -> Option<sgp4::Elements> {
        let satellite = &self.satellites[number as usize];
        let designed = satellite.slot.map(|slot| {
            let shell = &self.shells[slot.shell as usize];
            shell.elements(self.epoch, slot.plane, slot.index, u64::from(number) + 1)
        });
        satellite.elements.as_deref().cloned().or(designed)
    }

    /// Adds +Grid: each satellite is linked to the next one in its plane and to the one of the same index in the next
    /// plane. Planes wrap round in a delta; a star has no links across its seam.
    #[must_use]
    pub fn with_plus_grid(mut self) -> Self {
        let mut base = 0;
        for shell in &self.shells {
            for plane in 0..shell.planes {
                for index in 0..shell.per_plane {
                    let at = |p: u32, i: u32| base + p * shell.per_plane + i;
                    if shell.per_plane > 1 {
                        self.isls.push(isl(
                            at(plane, index),
                            at(plane, (index + 1) % shell.per_plane),
                            false,
                        ));
                    }
                    let wraps = matches!(shell.spread, Spread::Delta) && shell.planes > 2;
                    if plane + 1 < shell.planes || wraps {
                        self.isls.push(isl(at(plane, index), at((plane + 1) % shell.planes, index), true));
                    }
                }
            }
            base += shell.satellites();
        }
        self.isls.sort_unstable_by_key(|l| (l.b - l.a, l.a));
        self.isls.dedup_by_key(|l| (l.a, l.b));
        self
    }

    /// Replaces the foreseen links by pairs of satellite numbers.
    #[must_use]
    pub fn with_isls(mut self, pairs: &[(u32, u32)]) -> Self {
        let plane = |n: u32| self.satellites[n as usize].slot.map(|s| (s.shell, s.plane));
        self.isls =
            pairs.iter().filter(|p| p.0 != p.1).map(|&(a, b)| isl(a, b, plane(a) != plane(b))).collect();
        self.isls.sort_unstable_by_key(|l| (l.b - l.a, l.a));
        self.isls.dedup_by_key(|l| (l.a, l.b));
        self
    }
}

fn isl(a: u32, b: u32, cross_plane: bool) -> Isl {
    Isl { a: a.min(b), b: a.max(b), cross_plane }
}

#[cfg(test)]
mod tests {
    use crate::preset;

    #[test]
    fn plus_grid_gives_every_satellite_of_a_delta_four_neighbours() {
        let sky = preset::by_name("starlink-550").unwrap().constellation().unwrap();
        assert_eq!(sky.satellites.len(), 1584);
        assert_eq!(sky.isls.len(), 2 * 1584);
        let mut degree = vec![0; 1584];
        for link in &sky.isls {
            degree[link.a as usize] += 1;
            degree[link.b as usize] += 1;
        }
        assert!(degree.iter().all(|&d| d == 4));
    }

    #[test]
    fn a_star_has_no_links_over_its_seam() {
        let sky = preset::by_name("iridium").unwrap().constellation().unwrap();
        assert_eq!(sky.isls.iter().filter(|l| !l.cross_plane).count(), 66);
        assert_eq!(sky.isls.iter().filter(|l| l.cross_plane).count(), 55);
        assert!(sky.isls.iter().all(|l| l.b - l.a < 22), "plane 0 is not linked to plane 5");
    }
}
