use super::*;
use crate::sweep::{Options, run_all};

const FIGURE: &str = r#"
title = "Goodput against loss"
source = "a test"
seeds = 2

[[panel]]
scenario = "../scenarios/five-lossy-hops.toml"
set = ["duration=2s", "warmup=600ms", "topology.link.queue=100p"]

[panel.x]
label = "loss, %"
set = "topology.link.loss={}%"
values = [0, 1]

[[panel.series]]
name = "starhop"

[[panel.series]]
name = "slower"
set = ["topology.link.rate=10Mbit"]

[[panel.plot]]
y = "flow.a.goodput_mbps"
label = "Mbit/s"
forms = [{ kind = "hop-by-hop-throughput", rate_mbps = 20, x = "loss", x_scale = 0.01 }]

paper = [{ name = "theirs", read_from = "text", points = [[0, 19.0], [1, 18.5]], error = 0.5 }]

[[panel.plot]]
kind = "time"
y = "flow.a.series.goodput_mbps"
label = "Mbit/s"

[[panel.claim]]
by = "ours"
text = "twice the rate, twice the goodput"
value = "flow.a.goodput_mbps"
series = "starhop"
per = { series = "slower" }
least = 1.8
most = 2.2

[[panel.claim]]
by = "paper"
text = "the rate of the link does not matter"
value = "flow.a.goodput_mbps"
series = "slower"
at = 1
minus = { series = "starhop" }
least = 0.0
why = "No link carries more than its rate."

[[panel.claim]]
by = "ours"
text = "two of four cases run above 15 Mbit/s"
value = "flow.a.series.goodput_mbps@0.5..1"
cases_within = [15.0, 30.0]
least = 2
most = 2

[[panel.claim]]
by = "ours"
text = "the faster is above the slower"
value = "flow.a.goodput_mbps"
rising = ["slower", "starhop"]
"#;

fn in_folder<T>(figure: &str, with: impl FnOnce(&Path) -> T) -> T {
    let Ok(folder) = tempfile::tempdir() else { panic!() };
    let scenarios = folder.path().join("scenarios");
    let text = Library::BuiltIn.read(Path::new("scenarios/five-lossy-hops.toml")).unwrap_or_default();
    let file = folder.path().join("figures/one.toml");
    assert!(std::fs::create_dir_all(&scenarios).is_ok());
    assert!(std::fs::create_dir_all(folder.path().join("figures")).is_ok());
    assert!(std::fs::write(scenarios.join("five-lossy-hops.toml"), text).is_ok());
    assert!(std::fs::write(&file, figure).is_ok());
    with(&file)
}

#[test]
fn a_figure_becomes_data_plots_and_verdicts() {
    let finished = in_folder(FIGURE, |file| {
        let planned = plan(Library::Disk, file, None)?;
        assert_eq!(planned.scenarios.len(), 2 * 2 * 2);
        let results = run_all(&planned.scenarios, &Options::default(), &|_| ())?;
        finish(planned, &results)
    });
    let Ok(finished) = finished else { panic!("{finished:?}") };
    let held: Vec<bool> = finished.verdicts().map(|verdict| verdict.holds).collect();
    assert_eq!(held, [true, false, true, true], "{:?}", finished.panels[0].verdicts);
    let measured = finished.panels[0].verdicts[0].measured;
    assert!((1.9..2.1).contains(&measured), "{measured}");
    assert_eq!(finished.panels[0].csv.lines().count(), 1 + 8, "{}", finished.panels[0].csv);
    let html = page(std::slice::from_ref(&finished), "T");
    assert!(html.contains("disagrees") && html.contains("No link carries more than its rate."));
    assert!(html.contains("theirs, the paper (text)"));
    assert!(!html.contains("http"), "a page needs nothing but itself");
    assert!(index(&[finished]).contains("missed") || html.contains("met"));
}

#[test]
fn a_paper_is_confirmed_by_five_repetitions_and_their_whole_interval() {
    let words = |seeds: u64, least: &str| {
        let claim = format!(
            "by = \"paper\"\ntext = \"t\"\nvalue = \"flow.a.goodput_mbps\"\nseries = \"starhop\"\nat = 1\nleast = {least}\n"
        );
        let figure = FIGURE.split("[[panel.claim]]").next().unwrap_or_default().to_owned()
            + "[[panel.claim]]\n"
            + &claim;
        in_folder(&figure, |file| {
            let planned = plan(Library::Disk, file, Some(seeds))?;
            let results = run_all(&planned.scenarios, &Options::default(), &|_| ())?;
            finish(planned, &results).map(|finished| {
                let verdict = finished.verdicts().next().cloned();
                verdict.map(|verdict| (verdict.holds, verdict.is_sure, verdict.half_width.is_finite()))
            })
        })
    };
    assert_eq!(words(1, "1"), Ok(Some((true, false, false))));
    assert_eq!(words(3, "1"), Ok(Some((true, false, true))));
    assert_eq!(words(5, "1"), Ok(Some((true, true, true))));
    assert_eq!(words(5, "1000"), Ok(Some((false, false, true))));
}

#[test]
fn repetitions_share_out_what_is_set_in_turn() {
    let turns = "set_in_turn = [[\"duration=2s\"], [\"duration=3s\"]]\nscenario";
    let figure = FIGURE.replacen("scenario", turns, 1);
    let planned = in_folder(&figure, |file| plan(Library::Disk, file, Some(3)));
    let planned = planned.expect("the figure can be planned");
    for case in planned.scenarios.chunks(3) {
        let [first, second, third] = case else { panic!("three repetitions: {case:?}") };
        assert_eq!([first, second, third].map(|run| run.duration.as_secs_f64()), [2.0, 3.0, 2.0]);
        assert_eq!([second.seed - first.seed, third.seed - first.seed], [1, 2]);
    }
    let wrong = figure.replacen("duration=3s", "duratoin=3s", 1);
    let error = in_folder(&wrong, |file| plan(Library::Disk, file, None).map(|_| ()));
    assert!(error.as_ref().is_err_and(|error| error.contains("duratoin")), "{error:?}");
}

#[test]
fn what_is_wrong_with_a_figure_is_said_before_anything_runs() {
    for (from, to, problem) in [
        ("series = \"starhop\"\nper", "series = \"starhup\"\nper", "no series \"starhup\""),
        ("topology.link.loss={}%", "topology.link.lost={}%", "lost"),
        ("five-lossy-hops.toml", "none.toml", "none.toml"),
        ("label = \"loss, %\"", "lable = \"loss, %\"", "lable"),
        ("at = 1", "at = 1\nleats = 3", "leats"),
    ] {
        let error =
            in_folder(&FIGURE.replacen(from, to, 1), |file| plan(Library::Disk, file, None).map(|_| ()));
        assert!(error.as_ref().is_err_and(|error| error.contains(problem)), "{problem}: {error:?}");
    }
}

#[test]
fn every_figure_of_this_program_can_be_planned() {
    for id in Library::ids() {
        let planned = plan(Library::BuiltIn, Path::new(&format!("figures/{id}.toml")), Some(1));
        assert!(planned.as_ref().is_ok_and(|planned| !planned.scenarios.is_empty()), "{:?}", planned.err());
    }
}
