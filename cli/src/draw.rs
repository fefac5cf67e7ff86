//! Draws the state: the same for a terminal, for `--once` and for the tests.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Clear, Widget};
use unicode_width::UnicodeWidthStr;

use crate::app::{App, Mode};
use crate::data::{FINDINGS, is_about};
use crate::format::{clock, one_line, wrap};
use crate::screens::{Screen, View};
use crate::table::{Row, Table};

/// Colours, or none (`NO_COLOR`).
#[derive(Clone, Copy)]
pub struct Theme {
    /// Whether there are colours.
    pub has_colour: bool,
}

impl Theme {
    fn colour(self, colour: Color) -> Style {
        if self.has_colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    /// The colours of classes of waits, as pg_ash's.
    fn class(self, class: Option<&str>) -> Style {
        self.colour(match class {
            Some("CPU") => Color::Green,
            Some("IO") => Color::LightBlue,
            Some("Lock") => Color::LightRed,
            Some("LWLock") => Color::LightMagenta,
            Some("IPC") => Color::Cyan,
            Some("Client") => Color::Yellow,
            Some("Timeout") => Color::Magenta,
            Some("BufferPin") => Color::LightCyan,
            _ => return Style::new(),
        })
    }
}

/// What is said while a recording stands still at its end.
const ENDED: &str = "the replay has ended";
/// A note has at most this many lines.
const NOTE_LINES: usize = 5;

/// Draws all of it.
pub fn draw(frame: &mut Frame, app: &mut App, theme: Theme) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < 20 || area.height < 6 {
        buffer.set_stringn(area.x, area.y, "too small", area.width as usize, Style::new());
        return;
    }
    let (mut table, selected, sort) = app.table();
    app.keep_widths(&mut table, area.width);
    draw_head(buffer, area, app, theme);
    let width = area.width as usize;
    let notes = notes_of(app, &table);
    let notes: Vec<String> = whole_text(app, &table, selected, width)
        .iter()
        .chain(&notes)
        .flat_map(|note| wrap(note, width, NOTE_LINES))
        .collect();
    let notes_height = (notes.len() as u16).min(area.height.saturating_sub(8));
    let body = Rect {
        y: area.y + 2,
        height: area.height - 3 - notes_height,
        ..area
    };
    app.width = width;
    app.page = usize::from(body.height.saturating_sub(2)).max(1);
    draw_table(buffer, body, &table, selected, sort, theme);
    for (line, note) in notes.iter().take(notes_height as usize).enumerate() {
        let y = body.bottom() + line as u16;
        buffer.set_stringn(area.x, y, note, area.width as usize, theme.colour(Color::Yellow));
    }
    draw_foot(buffer, area, app, theme);
    if matches!(app.mode, Mode::Help(_)) {
        draw_help(buffer, area, app, theme);
    }
}

/// Returns what the columns of the selected row have no room for: a line of a text, the cause of a finding.
fn whole_text(app: &App, table: &Table, selected: usize, width: usize) -> Option<String> {
    let row = table.rows.get(selected)?;
    match app.screen() {
        Screen::Text {
            lines: Some(lines), ..
        } => {
            let line = lines.get(row.key.parse::<usize>().ok()?)?.trim();
            let is_rule = line.chars().all(|letter| matches!(letter, '-' | '|' | '+' | ' '));
            (line.width() > width && !is_rule).then(|| one_line(line))
        }
        Screen::List(View::Findings) => {
            let finding = app.data.findings.iter().find(|it| it.id.to_string() == row.key)?;
            let basis = finding.basis.as_deref().map(|basis| format!(" ({basis})"));
            let cause = finding.cause.as_deref()?;
            let since = finding.at.as_deref().map(|at| format!(" since {at}"));
            Some(one_line(&format!(
                "slower{} because: {cause}{}",
                since.unwrap_or_default(),
                basis.unwrap_or_default()
            )))
        }
        _ => None,
    }
}

/// Returns what a screen calls a part of a refresh.
fn name_of(part: &str) -> &str {
    match part {
        "Plans" | "ChangedPlans" => "statements",
        "Texts" => "texts of statements",
        "Nodes" | "ChangedNodes" => "nodes",
        "Plan" => "the plan",
        "Live" => "live statements",
        "LivePlan" => "the running plan",
        "Working" => "what processes do now",
        "Activity" => "activity",
        FINDINGS => "findings",
        "Waits" => "waits",
        "Temp" => "temporary files",
        "Locks" => "locks",
        "Blockers" => "who blocks it",
        "Sessions" => "sessions",
        other => other,
    }
}

fn notes_of(app: &App, table: &Table) -> Vec<String> {
    // The last line has no room for a long one.
    if let Some(trouble) = app.trouble.as_ref().filter(|it| it.width() + 15 > app.width) {
        return vec![format!("no connection: {trouble}")];
    }
    if app.data.at > 0.0 && app.trouble.is_none() && table.rows.is_empty() && app.is_awaiting() {
        return vec!["the answer of the server is awaited".to_owned()];
    }
    let is_findings = *app.screen() == Screen::List(View::Findings);
    let missing = app
        .data
        .missing
        .iter()
        .filter(|missing| is_findings || !is_about(missing, FINDINGS))
        .map(|missing| {
            let (part, why) = missing.split_once(": ").unwrap_or((missing, ""));
            format!("not refreshed: {}: {why}", name_of(part))
        });
    let waiting = (app.data.at == 0.0 && app.trouble.is_none())
        .then(|| "the first answer of the server is awaited".to_owned());
    let is_awaited = matches!(app.screen(), Screen::Text { lines: None, .. });
    // A page that says something has more to say than that it is empty.
    let is_silent = table.notes.is_empty() || matches!(app.screen(), Screen::List(_));
    let empty = app.data.at > 0.0
        && table.rows.is_empty()
        && (is_silent || !app.filter().is_empty())
        && !is_awaited
        && (missing.clone().next().is_none() || !app.filter().is_empty());
    let empty = empty.then(|| {
        if app.filter().is_empty() {
            app.screen().empty(&app.data)
        } else {
            "no row fits the filter".to_owned()
        }
    });
    table
        .notes
        .iter()
        .cloned()
        .chain(missing)
        .chain(waiting)
        .chain(empty)
        .collect()
}

fn draw_head(buffer: &mut Buffer, area: Rect, app: &App, theme: Theme) {
    let server = &app.data.server;
    let mut text = "rowsource".to_owned();
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    if app.data.at > 0.0 {
        let clock = clock(app.data.at);
        let version = server.version.split(' ').next().unwrap_or("");
        let kind = if server.standby { "standby" } else { "PostgreSQL" };
        text += &format!("  {kind} {version}  ");
        text += &match app.trouble {
            Some(_) => format!("NO CONNECTION: figures of {clock} UTC"),
            None => {
                let pace = app.real_pace.map_or(app.pace(), |real| real.max(app.pace()));
                format!("{clock} UTC  every {:.1} s", pace.as_secs_f64())
            }
        };
    }
    if app.trouble.is_some() {
        style = alarm(theme);
    }
    text += &format!("  {}", crate::format::without_controls(&app.place));
    buffer.set_stringn(area.x, area.y, text, area.width as usize, style);
    let names: usize = View::ALL.iter().map(|view| view.name().len() + 2).sum();
    let width = area.width as usize;
    let space = if names + View::ALL.len() > width { "" } else { " " };
    let has_names = names <= width + 1;
    let mut x = area.x;
    for (number, view) in View::ALL.into_iter().enumerate() {
        let is_shown = app.view() == Some(view);
        let style = if is_shown {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            theme.colour(Color::Gray)
        };
        let room = area.right().saturating_sub(x) as usize;
        // Without room for all names, that of the view has some.
        let name = if has_names || is_shown { view.name() } else { "" };
        let text = format!("{}{space}{name}", number + 1);
        let (end, _) = buffer.set_stringn(x, area.y + 1, text, room, style);
        x = (end + 1).min(area.right());
    }
}

fn draw_foot(buffer: &mut Buffer, area: Rect, app: &App, theme: Theme) {
    let y = area.bottom() - 1;
    let alarm = alarm(theme);
    let (text, style) = match &app.mode {
        Mode::Filter => (
            format!(
                "/{}_   part of any column; Enter keeps it, Esc removes it",
                app.filter()
            ),
            Style::new(),
        ),
        Mode::Command(typed) => {
            let names: Vec<_> = View::named(typed).map(View::name).collect();
            let names = match &names[..] {
                [] => "no view has this name".to_owned(),
                names => names.join(" "),
            };
            (format!(":{typed}_  {names}"), Style::new())
        }
        Mode::Asking(_, pid) => (format!("process {pid} is looked up"), alarm),
        Mode::Confirm(signal, session) => {
            // On a line of its own: the question has to be read as a whole.
            let width = area.width as usize;
            let said = crate::format::without_controls(&session.describe(width));
            buffer.set_stringn(area.x, y - 1, format!("{said:<width$}"), width, alarm);
            let (what, pid) = (signal.does(), session.pid);
            let long = format!("{what} of process {pid}? y: yes, any other key: no");
            let short = format!("{} {pid}? y: yes, other keys: no", signal.word());
            (if long.len() > width { short } else { long }, alarm)
        }
        Mode::Normal | Mode::Help(_) => said(app, area.width as usize, theme),
    };
    buffer.set_stringn(
        area.x,
        y,
        crate::format::without_controls(&text),
        area.width as usize,
        style,
    );
}

/// What alarms.
fn alarm(theme: Theme) -> Style {
    theme.colour(Color::LightRed).add_modifier(Modifier::BOLD)
}

/// Returns the last line while keys are commands. An event shares it with what else is said, and takes the
/// place of what keys do.
fn said(app: &App, width: usize, theme: Theme) -> (String, Style) {
    let alarm = alarm(theme);
    let yellow = theme.colour(Color::Yellow);
    if let Some(trouble) = &app.trouble {
        let paused = if app.paused { "PAUSED, " } else { "" };
        return (format!("{paused}no connection: {trouble}"), alarm);
    }
    if app.ended {
        let said = match app.status.as_str() {
            "" => crate::hints::hint(app, width.saturating_sub(ENDED.len() + 3)),
            status => status.to_owned(),
        };
        return (format!("{ENDED}   {said}"), yellow);
    }
    let news = app.news.now(app.data.at);
    let (text, style) = if !app.status.is_empty() {
        (app.status.clone(), yellow)
    } else if app.paused {
        ("PAUSED: Space goes on".to_owned(), alarm)
    } else if !app.filter().is_empty() {
        (format!("filter: {}   Esc removes it", app.filter()), Style::new())
    } else if let Some(news) = news {
        return (news.to_owned(), yellow);
    } else {
        return (crate::hints::hint(app, width), theme.colour(Color::Gray));
    };
    match news {
        Some(news) if !app.status.is_empty() && text.width() + 3 + news.width() > width => {
            (news.to_owned(), yellow)
        }
        Some(news) => (format!("{text}   {news}"), style),
        None => (text, style),
    }
}

fn draw_help(buffer: &mut Buffer, area: Rect, app: &mut App, theme: Theme) {
    let help = crate::keys::help(app.read_only, area.width as usize);
    let longest = help.iter().map(|line| line.width()).max().unwrap_or(0);
    let width = (longest as u16 + 4).min(area.width);
    let height = (help.len() as u16 + 2).min(area.height);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let style = theme.colour(Color::White).add_modifier(Modifier::REVERSED);
    // Nothing of what is below shows through.
    Clear.render(Rect::new(x, y, width, height), buffer);
    app.help_rest = help.len().saturating_sub(usize::from(height).saturating_sub(2));
    let first = match &mut app.mode {
        Mode::Help(first) => {
            *first = (*first).min(app.help_rest);
            *first
        }
        _ => 0,
    };
    for line in 0..height {
        let text = line
            .checked_sub(1)
            .filter(|_| line + 1 < height)
            .and_then(|line| help.get(first + line as usize))
            .map_or("", String::as_str);
        let text = format!("  {text:<longest$}  ");
        buffer.set_stringn(x, y + line, text, width as usize, style);
    }
}

fn draw_table(
    buffer: &mut Buffer,
    area: Rect,
    table: &Table,
    selected: usize,
    sort: Option<usize>,
    theme: Theme,
) {
    buffer.set_stringn(
        area.x,
        area.y,
        crate::format::without_controls(&table.title.in_width(area.width as usize)),
        area.width as usize,
        theme.colour(Color::Cyan),
    );
    let columns = table.layout(area.width);
    let right: Vec<bool> = columns.iter().map(|(index, _)| table.is_number(*index)).collect();
    let mut x = area.x;
    for ((index, width), right) in columns.iter().zip(&right) {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let style = if sort == Some(*index) {
            style.add_modifier(Modifier::UNDERLINED)
        } else {
            style
        };
        put(
            buffer,
            x,
            area.y + 1,
            table.columns[*index].title,
            *width,
            *right,
            style,
        );
        x = x.saturating_add(width + 1);
    }
    let room = usize::from(area.height.saturating_sub(2));
    let first = selected.saturating_sub(room.saturating_sub(1));
    for (line, (number, row)) in table.rows.iter().enumerate().skip(first).take(room).enumerate() {
        let y = area.y + 2 + line as u16;
        draw_row(
            buffer,
            Rect { y, height: 1, ..area },
            row,
            &columns,
            &right,
            row_style(row, number == selected, theme),
        );
    }
}

fn row_style(row: &Row, is_selected: bool, theme: Theme) -> Style {
    let mut style = theme.class(row.class.as_deref());
    if row.is_marked {
        style = theme.colour(Color::LightYellow).add_modifier(Modifier::BOLD);
    }
    match style.fg {
        // Said in colours: what reverses them may take the colour of text for white.
        Some(colour) if is_selected => style.fg(Color::Black).bg(colour),
        None if is_selected => style.add_modifier(Modifier::REVERSED),
        _ => style,
    }
}

fn draw_row(
    buffer: &mut Buffer,
    area: Rect,
    row: &Row,
    columns: &[(usize, u16)],
    right: &[bool],
    style: Style,
) {
    buffer.set_style(area, style);
    let mut x = area.x;
    for ((index, width), right) in columns.iter().zip(right) {
        put(
            buffer,
            x,
            area.y,
            &row.cells[*index].show(),
            *width,
            *right,
            style,
        );
        x = x.saturating_add(width + 1);
    }
}

/// Writes a text into a column, at its right end if it is a number. A text that is too long ends with
/// a tilde.
fn put(buffer: &mut Buffer, x: u16, y: u16, text: &str, width: u16, right: bool, style: Style) {
    let long = text.width() as u16;
    let start = if right { x + width.saturating_sub(long) } else { x };
    if start >= buffer.area.right() {
        return;
    }
    let (end, _) = buffer.set_stringn(start, y, text, width as usize, style);
    if long > width && width > 0 && end > start {
        buffer.set_stringn((x + width - 1).min(buffer.area.right() - 1), y, "~", 1, style);
    }
}

/// Returns the lines of a buffer without colours and without spaces at their ends.
pub fn lines_of(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y: u16| {
        let mut text = String::new();
        let mut skipped = 0;
        for x in area.left()..area.right() {
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skipped = symbol.width().saturating_sub(1);
            text += symbol;
        }
        text.trim_end().to_owned()
    };
    (area.top()..area.bottom()).map(line).collect()
}
