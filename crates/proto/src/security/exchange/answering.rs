use super::own::Own;
use super::{Exchange, MOST_TELL_AGAIN, Offer, TELL_AGAIN, id_of};
use crate::security::Keyring;
use crate::time::{Duration, Instant};

/// The keys that an asker offered last, and the secret agreed on with them.
pub(crate) struct Talk<A> {
    number: u8,
    offer: Offer,
    agreed: Option<Agreed<A>>,
    /// The offer names other keys than the secret depends on, or may.
    is_changed: bool,
    told: Option<Told>,
}

/// The key that the asker was told last.
struct Told {
    id: u32,
    at: Instant,
    /// Time after which it is told again.
    wait: Duration,
}

struct Agreed<A> {
    /// Id and number of the own key in it; 0 if there is none.
    id: u32,
    number: u8,
    secret: A,
}

impl<A> Talk<A> {
    pub(crate) fn new(number: u8, offer: Offer) -> Self {
        Self { number, offer, agreed: None, is_changed: true, told: None }
    }

    /// Takes the offer of the next Interest; true if replies may depend on other keys from now on.
    pub(crate) fn offer(&mut self, number: u8, offer: &Offer) -> bool {
        if self.offer == *offer {
            return false;
        }
        if self.offer.public != offer.public {
            self.agreed = None;
        }
        (self.number, self.offer, self.is_changed) = (number, *offer, true);
        true
    }

    /// The asker has proved its address: its offer is worth more now.
    pub(crate) fn prove(&mut self) {
        self.is_changed = true;
    }

    /// The static keys are others now.
    pub(crate) fn forget(&mut self) {
        (self.agreed, self.is_changed) = (None, true);
    }

    /// The secret for replies. `may_agree` takes one agreement of the asker's share.
    pub(super) fn answer<R: Keyring<Agreed = A>>(
        &mut self,
        keys: &mut R,
        own: &Own<R::Ephemeral>,
        is_proved: bool,
        may_agree: impl FnOnce() -> bool,
    ) -> (Exchange, Option<&A>) {
        if self.is_changed {
            self.is_changed = !self.agree(keys, own, is_proved, may_agree);
        }
        match &self.agreed {
            Some(Agreed { number, secret, .. }) => {
                (Exchange { asker: self.number, answerer: *number }, Some(secret))
            }
            None => (Exchange::NONE, None),
        }
    }

    /// Agrees on the best secret that the asker can know; false if it is to be tried again.
    fn agree<R: Keyring<Agreed = A>>(
        &mut self,
        keys: &mut R,
        own: &Own<R::Ephemeral>,
        is_proved: bool,
        may_agree: impl FnOnce() -> bool,
    ) -> bool {
        let known = self.offer.known;
        // An asker at an address that is not its own costs one multiplication, and no more.
        let pair = own.find(&known).filter(|_| is_proved);
        let id = pair.map_or(0, |pair| id_of(&pair.public));
        if let Some(agreed) = &self.agreed {
            // The private half of the key in use may be gone.
            let stays = agreed.id == id || (id == 0 && agreed.id != 0 && known.contains(&agreed.id));
            if stays {
                return true;
            }
        }
        let ours = pair.map(|pair| (&pair.private, &pair.public));
        if ours.is_none() && !keys.agrees_alone() {
            self.agreed = None;
            return true;
        }
        if self.agreed.as_ref().is_some_and(|agreed| agreed.id != 0 && !known.contains(&agreed.id)) {
            self.agreed = None;
        }
        if !may_agree() {
            return false;
        }
        let secret = keys.agree_answering(ours, &self.offer.public);
        let number = pair.map_or(0, |pair| pair.number);
        self.agreed = secret.map(|secret| Agreed { id, number, secret });
        true
    }

    /// Whether the asker does not name the key `id`, and was not told it just now.
    pub(super) fn is_to_be_told(&mut self, now: Instant, id: u32) -> bool {
        if self.offer.known.contains(&id) {
            return false;
        }
        let before = self.told.as_ref().filter(|told| told.id == id);
        if before.is_some_and(|told| now.since(told.at) < told.wait) {
            return false;
        }
        // On a thin link whose queue is seconds long the Notices would be most of what it carries.
        let wait = before.map_or(TELL_AGAIN, |told| told.wait.scaled(2, 1).min(MOST_TELL_AGAIN));
        self.told = Some(Told { id, at: now, wait });
        true
    }
}
