package goodput

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The picture of goodput is a self-contained file that is shown on light and on dark pages. Colours
// are also attributes, for viewers without media queries.

// Coordinates of the picture. Each panel has its plot, and the names of the lines to the right of
// it.
const (
	pictureMargin = 30.0
	panelLeft     = 62.0 // in its panel, as the following
	panelRight    = 372.0
	panelWidth    = 520.0
	pictureTop    = 128.0
	pictureBottom = 404.0
	pictureHeight = 494.0
	nameGap       = 17.0 // between two names
)

// colours are the colours of the ways to recover, on light and on dark pages.
var colours = map[string][2]string{
	"gold": {"#b8860b", "#e3b341"}, "gold:2": {"#7a4a12", "#c98a4b"}, "chain": {"#00795a", "#35c79b"}, "chain:3": {"#4f9d3a", "#9bd488"},
	"scar": {"#8c5bb1", "#c3a0e2"}, "stateless": {"#c2417f", "#f08fbd"}, "checkpoint": {"#1f6fb2", "#6fb4e8"},
}

// otherColours are the colours of other ways, in turn.
var otherColours = [][2]string{{"#d55e00", "#f39b57"}, {"#555555", "#bbbbbb"}, {"#2a8ca5", "#7fd0e3"}, {"#8a8a00", "#cfcf5a"}}

// panel is one of the plots.
type panel struct {
	title, text string
	lines       []curve
}

// curve is one way to recover: its goodput at each rate of failures, beginning with none.
type curve struct {
	name, class string
	at          []Row // in the order of the axis; missing ones have no name
}

// PictureOf draws the goodput over the rate of failures, as SVG.
func PictureOf(cfg *Config, rows []Row) string {
	rates := ratesOf(rows)
	panels := panelsOf(cfg, rows, rates)
	width := 2*pictureMargin + panelWidth*float64(max(1, len(panels)))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-labelledby="title desc" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif">`+"\n",
		width, pictureHeight, width, pictureHeight)
	fmt.Fprintf(&b, "<title id=\"title\">Goodput under random failures</title>\n<desc id=\"desc\">%s</desc>\n", html.EscapeString(inWords(panels, rates)))
	b.WriteString(style(panels))
	fmt.Fprintf(&b, `<rect class="paper" x="0.5" y="0.5" width="%g" height="%g" rx="10" fill="#fffdf8" stroke="#e4dfd3"/>`+"\n", width-1, pictureHeight-1)
	text := func(x, y, size float64, class, more, words string) {
		fill := map[string]string{"ink": "#26241f", "soft": "#6d675c"}[class]
		fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f" font-size="%g" fill="%s"%s>%s</text>`+"\n", class, x, y, size, fill, more, html.EscapeString(words))
	}
	text(pictureMargin, 42, 21, "ink", ` font-weight="600"`, "Goodput under random failures")
	text(pictureMargin, 66, 13.5, "soft", "", "Useful steps per second, of those of a run without any protection that nothing happens to")
	for i, p := range panels {
		left := pictureMargin + panelWidth*float64(i)
		text(left, 100, 15, "ink", ` font-weight="600"`, p.title)
		text(left, 118, 12.5, "soft", "", p.text)
		drawPanel(&b, text, p, left, rates)
	}
	text(pictureMargin, pictureHeight-18, 12, "soft", "", footer(cfg, rows))
	b.WriteString("</svg>\n")
	return b.String()
}

// footer describes the runs.
func footer(cfg *Config, rows []Row) string {
	who := "servers"
	if cfg.KillWorkers {
		who = "servers and workers"
	}
	rounds := rows[0].Rounds
	over := fmt.Sprintf("medians of %d rounds, bars from the least to the greatest", rounds)
	if rounds == 1 {
		over = "one round"
	}
	return fmt.Sprintf("%s, %d workers, %d servers; %s die at random and stay away for %g s, the same for all; %g s a run; %s",
		cfg.Model, cfg.Workers, cfg.Servers, who, cfg.Down.Seconds(), cfg.Stretch.Seconds(), over)
}

// style returns the style that changes the colours on dark pages.
func style(panels []panel) string {
	var b strings.Builder
	b.WriteString("<style>\n@media (prefers-color-scheme: dark) {\n" +
		"  .paper { fill: #17161a; stroke: #37343a; } .ink { fill: #ece7dc; } .soft { fill: #a39c8e; } .grid { stroke: #2c2a30; } .axis { stroke: #5a5548; } .dot { stroke: #17161a; }\n")
	for _, class := range classesOf(panels) {
		dark := lineColour(class)[1]
		fmt.Fprintf(&b, "  .%s.line, .%s.bar { stroke: %s; } .%s.dot, .%s.name { fill: %s; }\n", class, class, dark, class, class, dark)
	}
	b.WriteString("}\n</style>\n")
	return b.String()
}

// classesOf returns the classes of all lines, each once.
func classesOf(panels []panel) (classes []string) {
	for _, p := range panels {
		for _, l := range p.lines {
			if !slices.Contains(classes, l.class) {
				classes = append(classes, l.class)
			}
		}
	}
	return classes
}

// lineClass returns the class of a way to recover: its own, or one shared with others.
func lineClass(name string, place int) string {
	name = strings.TrimSuffix(strings.Replace(name, "chain:2", "chain", 1), ":1")
	if _, ok := colours[name]; ok {
		return "way-" + strings.ReplaceAll(name, ":", "-")
	}
	return fmt.Sprintf("other-%d", place%len(otherColours))
}

func lineColour(class string) [2]string {
	if name, ok := strings.CutPrefix(class, "way-"); ok {
		return colours[strings.ReplaceAll(name, "-", ":")]
	}
	return otherColours[class[len(class)-1]-'0']
}

// ratesOf returns the mean times between failures, from none, which is 0, to the shortest.
func ratesOf(rows []Row) (rates []float64) {
	for _, r := range rows {
		if !slices.Contains(rates, r.MTBF) {
			rates = append(rates, r.MTBF)
		}
	}
	slices.SortFunc(rates, func(a, b float64) int {
		if (a == 0) != (b == 0) {
			return cmp.Compare(a, b) // no failures come first
		}
		return cmp.Compare(b, a)
	})
	return rates
}

// panelsOf returns one panel for each requested kind of loss.
func panelsOf(cfg *Config, rows []Row, rates []float64) (panels []panel) {
	for _, loss := range cfg.Losses {
		p := panel{title: "A process dies", text: "what it left in the memory of its host is there when it comes back"}
		if loss == "lose" {
			p = panel{title: "A host dies", text: "and what was in its memory with it, as where a spot instance is taken away"}
		}
		others := 0
		for _, recovery := range cfg.Recoveries {
			if recovery.Name == "none" {
				continue
			}
			l := curve{name: recovery.Name, class: lineClass(recovery.Name, others), at: make([]Row, len(rates))}
			if strings.HasPrefix(l.class, "other") {
				others++
			}
			some := false
			for _, r := range rows {
				if r.Recovery == l.name && r.Goodput.Known() && (r.Loss == "none" || r.Loss == "either" || r.Loss == loss) {
					l.at[slices.Index(rates, r.MTBF)] = r
					some = true
				}
			}
			if some {
				p.lines = append(p.lines, l)
			}
		}
		panels = append(panels, p)
	}
	return panels
}

// drawPanel draws one panel, with the given left edge.
func drawPanel(b *strings.Builder, text func(x, y, size float64, class, more, words string), p panel, left float64, rates []float64) {
	first, last := left+panelLeft, left+panelRight
	least := 0.0
	for _, l := range p.lines {
		for _, r := range l.at {
			least = min(least, float64(r.Goodput))
		}
	}
	least = math.Floor(least*5) / 5 // negative values are runs that went back to before the stretch
	x := func(i int) float64 { return first + 14 + (last-first-28)*float64(i)/float64(max(1, len(rates)-1)) }
	y := func(goodput float64) float64 {
		return pictureBottom - (goodput-least)/(1-least)*(pictureBottom-pictureTop-22)
	}
	for fifth := int(math.Round(5 * least)); fifth <= 5; fifth++ {
		tick := float64(fifth) / 5
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ebe6da"/>`+"\n", first, last, y(tick), y(tick))
		text(first-8, y(tick)+4, 12, "soft", ` text-anchor="end"`, fmt.Sprintf("%.0f %%", 100*tick))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#b9b1a1"/>`+"\n", first, last, y(least), y(least))
	for i, rate := range rates {
		words := "never"
		if rate > 0 {
			words = fmt.Sprintf("%g s", rate)
		}
		text(x(i), pictureBottom+20, 12, "soft", ` text-anchor="middle"`, words)
	}
	text((first+last)/2, pictureBottom+40, 12, "soft", ` text-anchor="middle"`, "mean time between two failures")
	var ends []float64
	for _, l := range p.lines { // the first in the legend is drawn last, on top
		l.draw(b, x, y)
		ends = append(ends, y(float64(l.last().Goodput)))
	}
	for i, at := range apart(ends, nameGap, pictureTop+4, pictureBottom) {
		l := p.lines[i]
		colour := lineColour(l.class)[0]
		fmt.Fprintf(b, `<path class="%s bar" d="M%.1f %.1fL%.1f %.1f" fill="none" stroke="%s" stroke-opacity="0.55"/>`+"\n", l.class, x(len(rates)-1)+8, ends[i], last+12, at, colour)
		fmt.Fprintf(b, `<text class="%s name" x="%.1f" y="%.1f" font-size="13.5" font-weight="600" fill="%s">%s</text>`+"\n", l.class, last+17, at+4.5, colour,
			html.EscapeString(fmt.Sprintf("%s %.0f %%", l.name, 100*float64(l.last().Goodput))))
	}
}

// last returns the row at the highest available rate of failures.
func (l *curve) last() Row {
	for _, r := range slices.Backward(l.at) {
		if r.Name != "" {
			return r
		}
	}
	return Row{}
}

// draw draws the line, its points, and bars from the minimum to the maximum of the rounds.
func (l *curve) draw(b *strings.Builder, x func(int) float64, y func(float64) float64) {
	colour := lineColour(l.class)[0]
	path, points := "", ""
	for i, r := range l.at {
		if r.Name == "" {
			continue
		}
		at := y(float64(r.Goodput))
		path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(path), 1)], x(i), at)
		if r.Max > r.Min {
			fmt.Fprintf(b, `<line class="%s bar" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="5" stroke-opacity="0.22"/>`+"\n",
				l.class, x(i), x(i), y(float64(r.Min)), y(float64(r.Max)), colour)
		}
		points += fmt.Sprintf(`<circle class="%s dot" cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="#fffdf8" stroke-width="1.2"><title>%s</title></circle>`+"\n",
			l.class, x(i), at, colour, html.EscapeString(fmt.Sprintf("%s: %.1f %% (%.1f to %.1f)", r.what(), 100*r.Goodput, 100*r.Min, 100*r.Max)))
	}
	width := 2.2
	if l.name == "gold" { // the default recovery
		width = 3.4
	}
	fmt.Fprintf(b, `<path class="%s line" d="%s" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"/>`+"\n%s", l.class, path, colour, width, points)
}

// apart moves places so that they are at least gap apart, and between lo and hi if there is room.
// Each group of places that would overlap keeps its mean.
func apart(wanted []float64, gap, lo, hi float64) []float64 {
	type group struct {
		members []int   // ordered by wanted place
		top     float64 // of the first one
	}
	order := make([]int, len(wanted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wanted[a], wanted[b]) })
	place := func(g *group) {
		sum := 0.0
		for i, m := range g.members {
			sum += wanted[m] - gap*float64(i)
		}
		room := gap * float64(len(g.members)-1)
		g.top = max(lo, min(sum/float64(len(g.members)), hi-room))
	}
	var groups []group
	for _, i := range order {
		g := group{members: []int{i}}
		place(&g)
		for n := len(groups); n > 0 && groups[n-1].top+gap*float64(len(groups[n-1].members)) > g.top; n = len(groups) {
			g.members = append(slices.Clone(groups[n-1].members), g.members...)
			groups = groups[:n-1]
			place(&g)
		}
		groups = append(groups, g)
	}
	places := make([]float64, len(wanted))
	for _, g := range groups {
		for i, m := range g.members {
			places[m] = g.top + gap*float64(i)
		}
	}
	return places
}

// inWords describes the picture in words, for readers who cannot see it.
func inWords(panels []panel, rates []float64) string {
	var b strings.Builder
	for _, p := range panels {
		fmt.Fprintf(&b, "%s. ", p.title)
		for _, l := range p.lines {
			var parts []string
			for i, r := range l.at {
				if r.Name == "" {
					continue
				}
				when := "undisturbed"
				if rates[i] > 0 {
					when = fmt.Sprintf("a failure every %g s", rates[i])
				}
				parts = append(parts, fmt.Sprintf("%.0f %% with %s", 100*r.Goodput, when))
			}
			fmt.Fprintf(&b, "%s: %s. ", l.name, strings.Join(parts, ", "))
		}
	}
	return strings.TrimSpace(b.String())
}
