//! The parts of the file that are the watchdog's, and the user that the process becomes.

use super::super::broker::Charge;
use super::rules::rules;
use super::written::Written;
use super::{GatewayConfig, GatewayConfigError};
use std::path::{Path, PathBuf};

impl GatewayConfig {
    /// The rules and the congestion control in a file. Names of hosts in it are not looked up, which can take long.
    ///
    /// # Errors
    /// The file cannot be read, or makes no rules.
    pub(in crate::gateway) fn charge(path: &Path) -> Result<Charge, GatewayConfigError> {
        let read = |cause| GatewayConfigError::Read { path: path.to_owned(), cause };
        let text = std::fs::read_to_string(path).map_err(read)?;
        let written: Written = toml::from_str(&text)
            .map_err(|cause| GatewayConfigError::Form { path: path.to_owned(), cause })?;
        let rules = rules(&written).map_err(|(field, problem)| Self::fault(path, &field, &problem))?;
        Ok(Charge { port: written.port, rules, congestion: written.congestion })
    }

    /// The same of this configuration.
    pub(in crate::gateway) fn own_charge(&self) -> Charge {
        let congestion = self.written.congestion.clone();
        Charge { port: self.written.port, rules: self.rules.clone(), congestion }
    }

    /// The error of a field of a file.
    pub(in crate::gateway) fn fault(path: &Path, field: &str, problem: &str) -> GatewayConfigError {
        GatewayConfigError::Value {
            path: path.to_owned(),
            field: field.to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// Reads and checks the file anew, as the user that this process is now.
    ///
    /// # Errors
    /// As [`GatewayConfig::load`].
    pub(in crate::gateway) fn again(&self) -> Result<Self, GatewayConfigError> {
        Self::load(&self.path)
    }

    /// The files that are read again when the operator has changed them.
    pub(in crate::gateway) fn files(&self) -> Vec<&Path> {
        let Written { key, roster, end_key, .. } = &self.written;
        let named = [key, roster, end_key].into_iter().flatten();
        std::iter::once(&self.path).chain(named).map(PathBuf::as_path).collect()
    }

    /// The user that the process becomes if root starts it.
    pub(in crate::gateway) fn user(&self) -> Option<&str> {
        self.written.user.as_deref()
    }

    /// Whether the file names a user.
    pub fn has_user(&self) -> bool {
        self.written.user.is_some()
    }
}
