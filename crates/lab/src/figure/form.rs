//! Closed forms to hold measurements against.

use serde::Deserialize;

/// A closed form with its parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Its kind.
    pub kind: FormKind,
    /// Its name in the legend; that of its kind by default.
    #[serde(default)]
    pub name: String,
    /// Hops of the path, N.
    #[serde(default)]
    pub hops: f64,
    /// One-way delay of a hop, d, ms.
    #[serde(default)]
    pub delay_ms: f64,
    /// Loss per hop, p, 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// Rate of a hop, b, Mbit/s.
    #[serde(default)]
    pub rate_mbps: f64,
    /// Payload of a segment, bytes.
    #[serde(default)]
    pub mss: f64,
    /// Header bytes of a segment on the wire.
    #[serde(default)]
    pub overhead: f64,
    /// The share of a quantile, 0 to 1.
    #[serde(default)]
    pub share: f64,
    /// The parameter that x stands for.
    pub x: Option<Parameter>,
    /// The parameter is x times this: 0.01 if x is in per cent.
    #[serde(default = "unit")]
    pub x_scale: f64,
}

/// A closed form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormKind {
    /// Mean delay with end-to-end retransmission, ms: N·d·(1+P)/(1−P) with P = 1−(1−p)^N (LEOTP, equations 1, 2).
    EndToEndOwd,
    /// Mean delay with hop-by-hop retransmission, ms: N·d·(1+p)/(1−p) (LEOTP, equation 3).
    HopByHopOwd,
    /// A quantile of the delay with end-to-end retransmission, ms: every failure costs a round trip.
    EndToEndQuantile,
    /// A quantile of the delay with hop-by-hop retransmission, ms: every failure costs a round trip of its hop.
    HopByHopQuantile,
    /// Throughput with end-to-end retransmission, Mbit/s: b·(1−P) (LEOTP, equation 4).
    EndToEndThroughput,
    /// Throughput with hop-by-hop retransmission, Mbit/s: b·(1−p) (LEOTP, equation 5).
    HopByHopThroughput,
    /// Payload that a link delivers, Mbit/s, where each of its bits is lost by itself: b·s/(s+h)·(1−p)^8(s+h) for
    /// payloads of s bytes in packets of s+h.
    BitErrors,
    /// Throughput of NewReno, Mbit/s: MSS/RTT·√(3/2P), RTT = 2·N·d, but at most b (Mathis et al. 1997, equation 3).
    Mathis,
}

/// A parameter of a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// Hops.
    Hops,
    /// One-way delay of a hop.
    DelayMs,
    /// Loss per hop.
    Loss,
}

impl Form {
    /// Its value, with x in the place of its parameter.
    pub fn value(&self, x: Option<f64>) -> f64 {
        let mut form = self.clone();
        if let (Some(parameter), Some(x)) = (self.x, x) {
            let place = match parameter {
                Parameter::Hops => &mut form.hops,
                Parameter::DelayMs => &mut form.delay_ms,
                Parameter::Loss => &mut form.loss,
            };
            *place = x * self.x_scale;
        }
        form.evaluate()
    }

    /// Its name.
    pub fn title(&self) -> String {
        let default = match self.kind {
            FormKind::EndToEndOwd | FormKind::EndToEndQuantile => "closed form, end to end",
            FormKind::HopByHopOwd | FormKind::HopByHopQuantile => "closed form, hop by hop",
            FormKind::EndToEndThroughput => "b(1-P)",
            FormKind::HopByHopThroughput => "b(1-p)",
            FormKind::BitErrors => "bound",
            FormKind::Mathis => "Mathis",
        };
        if self.name.is_empty() { default.to_owned() } else { self.name.clone() }
    }

    fn evaluate(&self) -> f64 {
        let (n, d, p, b) = (self.hops, self.delay_ms, self.loss, self.rate_mbps);
        let path_loss = 1.0 - (1.0 - p).powf(n);
        match self.kind {
            FormKind::EndToEndOwd => n * d * (1.0 + path_loss) / (1.0 - path_loss),
            FormKind::HopByHopOwd => n * d * (1.0 + p) / (1.0 - p),
            FormKind::EndToEndQuantile => n * d * (1.0 + 2.0 * failures(1.0, path_loss, self.share)),
            FormKind::HopByHopQuantile => n * d + 2.0 * d * failures(n, p, self.share),
            FormKind::EndToEndThroughput => b * (1.0 - path_loss),
            FormKind::HopByHopThroughput => b * (1.0 - p),
            FormKind::BitErrors => {
                let packet = self.mss + self.overhead;
                b * self.mss / packet * (1.0 - p).powf(8.0 * packet)
            }
            FormKind::Mathis => (self.mss * 8e-3 / (2.0 * n * d) * (1.5 / path_loss).sqrt()).min(b),
        }
    }
}

/// The quantile of the number of failures before `successes` successes, each try failing with `p`: the negative
/// binomial distribution.
fn failures(successes: f64, p: f64, share: f64) -> f64 {
    let mut term = (1.0 - p).powf(successes);
    let (mut sum, mut k) = (term, 0.0);
    // A share of 1 would never be reached, and rounding may keep a smaller share away, too.
    while sum < share && k < 1e4 {
        term *= p * (successes + k) / (k + 1.0);
        k += 1.0;
        sum += term;
    }
    k
}

fn unit() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(kind: FormKind) -> Form {
        Form {
            kind,
            name: String::new(),
            hops: 10.0,
            delay_ms: 10.0,
            loss: 0.005,
            rate_mbps: 20.0,
            mss: 1448.0,
            overhead: 52.0,
            share: 0.99,
            x: None,
            x_scale: 1.0,
        }
    }

    #[test]
    fn the_papers_tail_comes_out_of_the_closed_form() {
        // Figure 3 of LEOTP: 300 and 120 ms at the 99th percentile.
        assert_eq!(form(FormKind::EndToEndQuantile).value(None), 300.0);
        assert_eq!(form(FormKind::HopByHopQuantile).value(None), 120.0);
    }

    #[test]
    fn quantiles_have_the_mean_of_the_closed_form() {
        for (mean, quantile) in [
            (FormKind::EndToEndOwd, FormKind::EndToEndQuantile),
            (FormKind::HopByHopOwd, FormKind::HopByHopQuantile),
        ] {
            let at = |i: u32| Form { share: (f64::from(i) + 0.5) / 1e4, ..form(quantile) }.value(None);
            let sampled = (0..10_000).map(at).sum::<f64>() / 1e4;
            let exact = form(mean).value(None);
            assert!((sampled / exact - 1.0).abs() < 0.002, "{sampled} {exact}");
        }
    }

    #[test]
    fn bit_errors_take_whole_packets() {
        let bits = Form { loss: 1e-5, ..form(FormKind::BitErrors) };
        // 12000 bits a packet: e^-0.12 of them arrive.
        let expected = 20.0 * 1448.0 / 1500.0 * (-0.12f64).exp();
        assert!((bits.value(None) / expected - 1.0).abs() < 1e-5, "{} {expected}", bits.value(None));
    }

    #[test]
    fn x_takes_the_place_of_its_parameter() {
        let form = Form { x: Some(Parameter::Loss), x_scale: 0.01, ..form(FormKind::HopByHopThroughput) };
        assert_eq!(form.value(Some(1.0)), 19.8);
        assert_eq!(form.value(None), 19.9);
    }
}
