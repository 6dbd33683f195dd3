//! The demo's loop: a terminal, lines, or one report.
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::FaultName;
use super::control::{self, ControlServer, DemoDir, Order};
use super::model::{Model, Mood};
use super::stage::{Stage, StageOptions};
use super::text;
use super::view::{self, Screen};
use crate::args::{DemoArgs, DemoCommand};
use crate::error::CliError;
use crate::human;

/// How often the numbers are read and the screen is drawn.
const TICK: Duration = Duration::from_millis(100);
/// How often a summary is printed where there is no screen.
const SUMMARY: Duration = Duration::from_secs(5);

/// Runs the demo, or asks a running one for a fault.
pub(crate) async fn run(args: DemoArgs, stop: CancellationToken) -> Result<(), CliError> {
    if let Some(DemoCommand::Fault { name }) = args.command {
        let answer = control::ask(name).await?;
        return Ok(writeln!(io::stdout(), "{answer}")?);
    }
    let dir = DemoDir::create().map_err(|error| {
        CliError::new(format!("no directory can be made in {}: {error}", std::env::temp_dir().display()))
            .hint("set TMPDIR to one that can be written")
    })?;
    let options = StageOptions { tls: args.tls, pods: args.objects, churn: args.churn };
    let stage = Stage::set(options).await?;
    let kubeconfig = dir.write("kubeconfig", &stage.kubeconfig())?;
    let (sender, orders) = mpsc::channel(4);
    let control = ControlServer::start(&dir, sender).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(control.run());
    let screen = Screen { url: stage.url(), kubeconfig: kubeconfig.display().to_string() };
    let mut demo = Demo { stage, model: Model::default(), screen, orders, begun: Instant::now(), stop };
    let result = if args.once {
        demo.once(args.sync_timeout).await
    } else if args.lines || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        demo.lines().await
    } else {
        demo.terminal().await
    };
    demo.stage.strike_down().await;
    result
}

/// Gives the terminal back, should it still be the demo's.
pub(crate) fn leave_terminal() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        ratatui::restore();
    }
}

struct Demo {
    stage: Stage,
    model: Model,
    screen: Screen,
    orders: mpsc::Receiver<Order>,
    begun: Instant,
    stop: CancellationToken,
}

impl Demo {
    /// The live screen, until `q` or Ctrl-C.
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
                        Meaning::Fault(fault) => drop(self.inflict(fault).await),
                        Meaning::Nothing => continue,
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(()),
                },
            }
            terminal.draw(|frame| view::draw(frame, &self.model, &self.screen))?;
        }
    }

    /// Lines: one for each entry of the log, and a summary every few seconds.
    async fn lines(&mut self) -> Result<(), CliError> {
        let mut out = io::stdout();
        for line in self.introduction() {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "inflict faults with: skopos demo fault NAME (see skopos demo fault --help)")?;
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

    /// One report: synced, one fault inflicted and healed, the table.
    async fn once(&mut self, limit: Duration) -> Result<(), CliError> {
        const HEALING: Duration = Duration::from_secs(20);
        /// Enough for a rate to show, and for a first age to be proven.
        const LOOK: Duration = Duration::from_secs(2);
        let synced = self.until(limit, Model::all_live).await;
        let mut healed = false;
        if synced {
            let look = self.now() + LOOK;
            self.until(LOOK * 2, |model| model.sample().at >= look).await;
            let fault_at = self.now();
            self.inflict(FaultName::Reset).await.map_err(CliError::new)?;
            healed = self.until(HEALING, |model| model.all_healed_since(fault_at)).await;
        }
        if self.stop.is_cancelled() {
            return Ok(());
        }
        self.report(&mut io::stdout())?;
        match (synced, healed) {
            (false, _) => {
                let waited = human::seconds(limit);
                Err(CliError::new(format!("not everything synced within {waited}: {}", self.stage.missing())))
            }
            (true, false) => {
                Err(CliError::new(format!("not everything recovered within {}", human::seconds(HEALING))))
            }
            (true, true) => Ok(()),
        }
    }

    fn report(&self, out: &mut impl Write) -> Result<(), CliError> {
        for line in self.introduction() {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        for entry in self.model.log(usize::MAX) {
            writeln!(out, "{}", text::entry(entry))?;
        }
        writeln!(out)?;
        for line in text::table(&self.model) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        writeln!(out, "{}", self.model.summary())?;
        Ok(out.flush()?)
    }

    fn introduction(&self) -> [String; 2] {
        [
            format!("a Kubernetes API server runs in this process at {}", self.screen.url),
            format!("beside it: kubectl --kubeconfig {} get pods -A", self.screen.kubeconfig),
        ]
    }

    /// Ticks until the condition holds (true), the time is over or the demo shall end (false).
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
        for over in self.stage.due().await {
            self.model.fault_over(self.now(), over);
        }
        let sample = self.stage.sample(self.begun);
        self.model.observe(sample);
    }

    async fn obey(&mut self, order: Order) {
        let answer = self.inflict(order.fault).await;
        // Whoever asked may have gone.
        let _ = order.answer.send(answer);
    }

    /// Inflicts a fault, writes it down, and returns what to tell whoever asked.
    async fn inflict(&mut self, fault: FaultName) -> Result<String, String> {
        let at = self.now();
        match self.stage.inflict(fault).await {
            Ok(tale) if fault == FaultName::Heal || tale.over => {
                self.model.fault_over(at, tale.text);
                Ok(tale.text.into())
            }
            Ok(tale) => {
                self.model.inflict(at, fault);
                Ok(tale.text.into())
            }
            Err(reason) => {
                self.model.note(at, reason.clone(), Mood::Waiting);
                Err(reason)
            }
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

enum Meaning {
    Quit,
    Fault(FaultName),
    Nothing,
}

fn meaning(key: KeyEvent) -> Meaning {
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Meaning::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Meaning::Quit,
        KeyCode::Char(c) => FaultName::of_key(c).map_or(Meaning::Nothing, Meaning::Fault),
        _ => Meaning::Nothing,
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}
