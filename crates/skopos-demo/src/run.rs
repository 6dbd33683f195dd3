//! The demo's loop: a terminal, lines, or one report.
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use ratatui::DefaultTerminal;
use skopos_console::error::CliError;
use skopos_console::human;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::{DemoArgs, DemoCommand};
use crate::control::{self, ControlServer, DemoDir, Order};
use crate::model::{Model, Mood};
use crate::stage::{Stage, StageOptions};
use crate::story::Story;
use crate::{FaultName, text, view};

/// Time limit of the shutdown, when a client holds on to connections.
pub const GRACE: Duration = Duration::from_secs(8);

/// Interval at which the numbers are read and the screen is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Interval between summaries where there is no screen.
const SUMMARY: Duration = Duration::from_secs(5);

/// Runs the demo, or asks a running one for a fault.
pub async fn run(args: DemoArgs, stop: CancellationToken) -> Result<(), CliError> {
    if let Some(DemoCommand::Fault { name, cluster }) = args.command {
        let answer = control::ask(name, cluster).await?;
        return Ok(writeln!(io::stdout(), "{answer}")?);
    }
    let dir = DemoDir::create().map_err(|error| {
        CliError::new(format!("no directory can be made in {}: {error}", std::env::temp_dir().display()))
            .hint("set TMPDIR to one that can be written")
    })?;
    let begun = Instant::now();
    let DemoArgs { clusters, churn, port, .. } = args;
    // The story counts pods, so only its own steps may change their number.
    let options = StageOptions { clusters, churn, scales: !args.once, port };
    let Some(stage) = stop.run_until_cancelled(Stage::set(options, &dir)).await else { return Ok(()) };
    let stage = stage?;
    let (sender, orders) = mpsc::channel(4);
    let control = ControlServer::start(&dir, sender).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(control.run());
    let mut demo = Demo { stage, model: Model::default(), selected: 0, orders, begun, stop };
    let result = if args.once {
        demo.once(args.patience).await
    } else if args.lines || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        demo.lines().await
    } else {
        demo.terminal().await
    };
    demo.stage.strike_down().await;
    result
}

/// Restores the terminal if it is still the demo's.
pub fn leave_terminal() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        ratatui::restore();
    }
}

struct Demo {
    stage: Stage,
    model: Model,
    /// Number of the selected cluster, which keys act on
    selected: usize,
    orders: mpsc::Receiver<Order>,
    begun: Instant,
    stop: CancellationToken,
}

impl Demo {
    /// Runs the live screen, until `q` or Ctrl-C.
    async fn terminal(&mut self) -> Result<(), CliError> {
        let mut terminal = ratatui::try_init()?;
        let result = self.screen_loop(&mut terminal).await;
        ratatui::restore();
        result
    }

    async fn screen_loop(&mut self, terminal: &mut DefaultTerminal) -> Result<(), CliError> {
        let mut keys = EventStream::new();
        let mut ticks = ticks();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                _ = ticks.tick() => self.tick().await,
                Some(order) = self.orders.recv() => self.obey(order).await,
                event = keys.next() => match event {
                    Some(Ok(TerminalEvent::Key(key))) if key.kind == KeyEventKind::Press => match meaning(key) {
                        Meaning::Quit => return Ok(()),
                        Meaning::Fault(fault) => {
                            let cluster = self.selected_cluster();
                            drop(self.inflict(fault, &cluster).await);
                        }
                        Meaning::Up => self.selected = self.selected.saturating_sub(1),
                        Meaning::Down => self.selected += 1,
                        Meaning::Nothing => continue,
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(()),
                },
            }
            self.selected = self.selected.min(self.model.sample().clusters.len().saturating_sub(1));
            terminal.draw(|frame| view::draw(frame, &self.model, &self.stage.scene, self.selected))?;
        }
    }

    /// Prints one line for each entry of the log, and a summary every few seconds.
    async fn lines(&mut self) -> Result<(), CliError> {
        let mut out = io::stdout();
        self.introduce(&mut out)?;
        let mut ticks = ticks();
        let mut logged = 0;
        let mut next_summary = SUMMARY;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                _ = ticks.tick() => self.tick().await,
                Some(order) = self.orders.recv() => self.obey(order).await,
            }
            let (entries, count) = self.model.log_since(logged);
            logged = count;
            for entry in &entries {
                writeln!(out, "{}", text::entry(entry))?;
            }
            if self.now() >= next_summary {
                next_summary = self.now() + SUMMARY;
                writeln!(out, "{:>7.1}s  {}", self.now().as_secs_f64(), self.model.summary())?;
            }
        }
    }

    /// Runs the whole story with its checks, and prints the final state.
    async fn once(&mut self, limit: Duration) -> Result<(), CliError> {
        let mut out = io::stdout();
        self.introduce(&mut out)?;
        self.until_all_live(limit).await?;
        for entry in self.model.log(usize::MAX) {
            writeln!(out, "{}", text::entry(entry))?;
        }
        let mut story = std::pin::pin!(Story::new(&self.stage, self.begun, limit).tell());
        let stop = self.stop.clone();
        let mut ticks = ticks();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = ticks.tick() => self.tick().await,
                told = &mut story => break told?,
            }
        }
        self.until_all_live(limit).await?;
        writeln!(out)?;
        for line in text::table(&self.model) {
            writeln!(out, "{line}")?;
        }
        Ok(out.flush()?)
    }

    async fn until_all_live(&mut self, limit: Duration) -> Result<(), CliError> {
        if self.until(limit, Model::all_live).await || self.stop.is_cancelled() {
            return Ok(());
        }
        let (waited, missing) = (human::seconds(limit), self.model.missing());
        Err(CliError::new(format!("not everything is live within {waited}: {missing}")))
    }

    /// Prints what runs, and the commands to try.
    fn introduce(&self, out: &mut impl Write) -> Result<(), CliError> {
        let scene = &self.stage.scene;
        let clusters = human::count(scene.names.len() as u64, "virtual cluster");
        writeln!(
            out,
            "a host cluster with {clusters} runs in this process; the gateway in front: {}",
            scene.url
        )?;
        writeln!(out, "\ntry, in another terminal:")?;
        for line in scene.lines() {
            writeln!(out, "  {line}")?;
        }
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// Ticks until the condition holds (true), or the time limit passes or the demo ends (false).
    async fn until(&mut self, limit: Duration, done: impl Fn(&Model) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut ticks = ticks();
        while Instant::now() < deadline && !self.stop.is_cancelled() {
            ticks.tick().await;
            self.tick().await;
            if done(&self.model) {
                return true;
            }
        }
        false
    }

    async fn tick(&mut self) {
        for (cluster, over) in self.stage.due().await {
            self.model.fault_over(self.now(), &cluster, over);
        }
        let sample = self.stage.sample(self.begun);
        self.model.observe(sample);
    }

    async fn obey(&mut self, order: Order) {
        let answer = match self.stage.meant(order.cluster.as_deref()) {
            Ok(cluster) => self.inflict(order.fault, &cluster).await,
            Err(problem) => Err(problem),
        };
        // The command that asked may be gone.
        let _ = order.answer.send(answer);
    }

    /// Inflicts a fault on a cluster, logs it, and returns the answer for the requester.
    async fn inflict(&mut self, fault: FaultName, cluster: &str) -> Result<String, String> {
        let at = self.now();
        match self.stage.inflict(fault, cluster).await {
            Ok(deed) => {
                match deed.over {
                    true => self.model.fault_over(at, cluster, deed.text),
                    false => self.model.inflict(at, fault, cluster),
                }
                Ok(format!("{cluster}: {}", deed.text))
            }
            Err(reason) => {
                self.model.note(at, reason.clone(), Mood::Waiting);
                Err(reason)
            }
        }
    }

    fn selected_cluster(&self) -> String {
        let clusters = &self.model.sample().clusters;
        clusters.get(self.selected).map_or_else(String::new, |cluster| cluster.name.clone())
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

enum Meaning {
    Quit,
    Up,
    Down,
    Fault(FaultName),
    Nothing,
}

fn meaning(key: KeyEvent) -> Meaning {
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Meaning::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Meaning::Quit,
        KeyCode::Up => Meaning::Up,
        KeyCode::Down => Meaning::Down,
        KeyCode::Char(c) => FaultName::from_key(c).map_or(Meaning::Nothing, Meaning::Fault),
        _ => Meaning::Nothing,
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}
