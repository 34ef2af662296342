//! `sample --summary`: draws in short, as text, table and JSON.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{SMALL, folder, numbers, refuse, run, stderr, succeed};

#[test]
fn a_summary_is_that_of_the_draws() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::write(here.join("obs.csv"), "y1,y2\n0.5,-0.25\n0,1\n-0.4,0.2\n").unwrap();
    let at = "sample m.brenier --given obs.csv -n 400 --seed 5";
    let text = succeed(here, &format!("{at} --summary"));
    for part in
        ["observation 1 of 3, 400 draws", "observation 3 of 3", "mean", "95 %", "HPD 90 %", "correlation"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("x2 ")).count(), 6, "{text}");

    // All at once: draws to --out, a table, JSON. Every figure is that of the draws in the file.
    let all = format!("{at} --summary=s.csv --json=s.json --out d.csv");
    assert_eq!(succeed(here, &all), "");
    let draws = numbers(&fs::read_to_string(here.join("d.csv")).unwrap());
    assert_eq!(numbers(&succeed(here, at)), draws);
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("s.json")).unwrap()).unwrap();
    assert_eq!(
        (&json["columns"][1], &json["seed"], &json["hpd_mass"]),
        (&"x2".into(), &5.into(), &0.9.into())
    );
    let table = fs::read_to_string(here.join("s.csv")).unwrap();
    let names: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    let rows = numbers(&table);
    assert_eq!((rows.len(), names[0], names[1]), (3, "observation", "x1_mean"));
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
    for observation in 0..3 {
        let mut x1: Vec<f64> =
            draws.iter().filter(|row| row[0] == observation as f64 + 1.0).map(|row| row[1]).collect();
        x1.sort_by(f64::total_cmp);
        let mean = x1.iter().sum::<f64>() / 400.0;
        let median = 0.5 * (x1[199] + x1[200]);
        let own = &json["observations"][observation];
        assert_eq!((&own["observation"], &own["draws"]), (&(observation + 1).into(), &400.into()));
        let column = &own["columns"][0];
        close(column["mean"].as_f64().unwrap(), mean);
        close(column["quantiles"][2].as_f64().unwrap(), median);
        let [low, high] = [0, 1].map(|end| column["hpd"][end].as_f64().unwrap());
        assert_eq!(x1.iter().filter(|x| (low..=high).contains(*x)).count(), 361);
        let cell = |name: &str| rows[observation][names.iter().position(|own| *own == name).unwrap()];
        close(cell("x1_mean"), mean);
        close(cell("x1_q50"), median);
        close(cell("x1_hpd90_low"), low);
        close(cell("correlation_x1_x2"), own["correlation"][0][1].as_f64().unwrap());
    }
    // JSON on standard output stands in place of the text, and is the same.
    let printed: serde_json::Value =
        serde_json::from_str(&succeed(here, &format!("{at} --summary --json"))).unwrap();
    assert_eq!(printed, json);
    succeed(here, &format!("{at} --summary=s.parquet"));
    assert!(here.join("s.parquet").exists());

    // The text shows the first observations, the table has all.
    let many: String = (0..30).map(|i| format!("0.{i},0.1\n")).collect();
    fs::write(here.join("many.csv"), format!("y1,y2\n{many}")).unwrap();
    let text = succeed(here, "sample m.brenier --given many.csv -n 50 --summary");
    assert!(text.contains("observation 20 of 30") && text.contains("10 more observations"), "{text}");
    let csv = succeed(here, "sample m.brenier --given many.csv -n 50 --summary=-");
    assert_eq!(numbers(&csv).len(), 30);

    refuse(here, &format!("{at} --summary --out -"), 2, &["--out -", "--summary", "standard output"]);
    refuse(here, &format!("{at} --summary=- --json"), 2, &["--summary", "--json", "standard output"]);
    refuse(here, &format!("{at} --summary --with residual"), 2, &["--with", "--out"]);
    refuse(here, &format!("{at} --summary=s.xyz"), 2, &["s.xyz"]);
    refuse(here, "sample m.brenier --given obs.csv -n 1 --summary", 2, &["-n", "at least 2"]);
    assert_eq!(run(here, &format!("{at} --json")).status.code(), Some(2));
}

/// One observation among three at which no draw can be computed: the others are answered, with the same exit code in every
/// command.
#[test]
fn an_observation_without_draws_does_not_lose_the_others() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::write(here.join("obs.csv"), "y1,y2\n0.5,-0.25\n1e30,1e30\n-0.4,0.2\n").unwrap();
    let at = "sample m.brenier --given obs.csv -n 50";
    let drawn = run(here, &format!("{at} --out d.csv"));
    assert_eq!(drawn.status.code(), Some(0), "{}", stderr(&drawn));
    assert!(stderr(&drawn).contains("100 draws at 2 of 3 observations written"), "{}", stderr(&drawn));
    for flags in ["--summary=s.csv --json=s.json", "--summary=t.csv --out e.csv"] {
        let summed = run(here, &format!("{at} {flags}"));
        assert_eq!(summed.status.code(), Some(0), "{}", stderr(&summed));
        for part in ["50 of 150 draws could not be solved", "observation 2 has no draws"] {
            assert!(stderr(&summed).contains(part), "{part}: {}", stderr(&summed));
        }
    }
    let rows = numbers(&fs::read_to_string(here.join("s.csv")).unwrap());
    assert!(rows.len() == 3 && rows[1][1].is_nan() && rows[0][1].is_finite() && rows[2][1].is_finite());
    assert_eq!(fs::read(here.join("s.csv")).unwrap(), fs::read(here.join("t.csv")).unwrap());
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("s.json")).unwrap()).unwrap();
    let second = &json["observations"][1];
    assert!(second["draws"] == 0 && second["columns"][0]["mean"].is_null(), "{second}");
    // The same of maxima; where there is none at all it is an error.
    let modes = run(here, "mode m.brenier --given obs.csv --out modes.csv");
    assert_eq!(modes.status.code(), Some(0), "{}", stderr(&modes));
    assert!(stderr(&modes).contains("warning: observation 2: no start reached"), "{}", stderr(&modes));
    assert!(stderr(&modes).contains("2 points written"), "{}", stderr(&modes));
    let rows = numbers(&fs::read_to_string(here.join("modes.csv")).unwrap());
    assert!(rows[1][0] == 2.0 && rows[1][1].is_nan() && rows[2][1].is_finite(), "{rows:?}");
    let text = succeed(here, "mode m.brenier --given obs.csv");
    assert!(text.contains("observation 2: no maximum") && text.contains("observation 3: max"), "{text}");
    refuse(here, "mode m.brenier --at y1=1e30,y2=1e30", 1, &["observation 1", "finite density"]);
    refuse(here, "sample m.brenier --at y1=1e30,y2=1e30 --summary", 1, &["nothing to write"]);
    refuse(here, "sample m.brenier --at y1=1e30,y2=1e30", 1, &["nothing to write"]);
}

/// Beta(0.3, 0.3) grows without bound towards 0 and 1: there is no maximum in these units.
#[test]
fn a_density_that_grows_towards_a_bound_has_no_mode() {
    let folder = folder();
    let here = folder.path();
    let rows: String = (1..400)
        .map(|i| {
            let u = f64::from(i) / 400.0;
            // Quantiles of a density like p^(−0.7) at both ends.
            let p = if u < 0.5 { 0.5 * (2.0 * u).powf(3.3) } else { 1.0 - 0.5 * (2.0 - 2.0 * u).powf(3.3) };
            format!("{p},{}\n", (f64::from(i) * 0.7).sin())
        })
        .collect();
    fs::write(here.join("p.csv"), format!("p,y\n{rows}")).unwrap();
    succeed(
        here,
        "fit p.csv --method gaussian --target p --given y --support p=interval(0,1) --quiet --out p.brenier",
    );
    let words = ["observation 1", "of \"p\"", "no maximum", "--density standardised"];
    refuse(here, "mode p.brenier --at y=0", 1, &words);
    let text = succeed(here, "mode p.brenier --at y=0 --density standardised");
    assert!(text.contains("maximum of the density of the standardised variable"), "{text}");
}

#[test]
fn joint_and_unconditional_models_have_summaries_too() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --joint --out j.brenier"));
    let text = succeed(here, "sample j.brenier -n 100 --summary");
    assert!(text.starts_with("100 draws\n") && text.contains("\ny2 "), "{text}");
    succeed(here, "fit data.csv --target x1 --feature-width 8 --epochs 2 --quiet --out u.brenier");
    let text = succeed(here, "sample u.brenier -n 100 --summary");
    assert!(text.contains("\nx1 ") && !text.contains("correlation"), "{text}");
}
