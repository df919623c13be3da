package report

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"inflight/report/internal/synth"
	"inflight/runner/result"
)

// browser starts a headless Chromium and returns the context of a tab. It skips where there is none, unless
// INFLIGHT_REQUIRE_PEERS says that none may be missing.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser; run without -short")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		why := "no Chromium in PATH: apt-get install -y --no-install-recommends chromium"
		if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
			t.Fatal(why)
		}
		t.Skip(why + " (INFLIGHT_REQUIRE_PEERS=1 makes this a failure)")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1100, 900),
		chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own does not work for root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser, so that its directory can be removed
		cancel()
	})
	return ctx
}

// trouble gathers what a page must not do: write errors to the console, throw, or ask for anything.
type trouble struct {
	mu   sync.Mutex
	list []string
}

func (tr *trouble) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.list = append(tr.list, fmt.Sprintf(format, args...))
}

func (tr *trouble) listen(ctx context.Context, below string) error {
	return chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventConsoleAPICalled:
			tr.add("console: %s", e.Type)
		case *cdpruntime.EventExceptionThrown:
			tr.add("exception: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			tr.add("log: %s %s", e.Entry.Text, e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, below) && !strings.HasPrefix(e.Request.URL, "data:") {
				tr.add("request: %s", e.Request.URL)
			}
		}
	})
}

// value runs an action that returns one.
func value[T any](ctx context.Context, t *testing.T, what string, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return v
}

// call is a command of the protocol whose answer does not matter.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// script runs in the page.
func script(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[bool]("(() => { "+text+"; return true })()")(ctx, t)
		return err
	})
}

// TestPageInABrowser opens the page from disk and uses it as people do.
func TestPageInABrowser(t *testing.T) {
	ctx := browser(t)
	r := synth.Fixtures()["incorrect"]
	for i := range r.Cells { // a time line as well
		c := &r.Cells[i]
		for k := range c.Blocks {
			c.Samples = append(c.Samples, result.Sample{AtNS: c.Blocks[k].StartedNS, RSS: c.RSSPeak})
		}
	}
	dir := t.TempDir()
	address := writePage(t, dir, HTMLFile, r)
	var bad trouble
	if err := bad.listen(ctx, "file://"+filepath.ToSlash(dir)+"/"); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	run := func(what string, actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	truth := func(what, script string) {
		t.Helper()
		if !value(ctx, t, what, chromedp.Evaluate[bool](script)) {
			t.Errorf("%s: not so: %s", what, script)
		}
	}
	run("open", call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), chromedp.Navigate(address))
	ms := value(ctx, t, "open", chromedp.Evaluate[float64](`new Promise((done) => setTimeout(() => done(performance.getEntriesByType("navigation")[0].loadEventEnd), 20))`, chromedp.EvalAwaitPromise))
	t.Logf("opened in %.0f ms", ms)

	// Hovering, by mouse and by keyboard.
	truth("a tip is hidden at first", `document.getElementById("tip").hidden`)
	run("scroll to a chart", script(`document.querySelector("figure svg").scrollIntoView({block: "center"})`), chromedp.Sleep(50*time.Millisecond))
	at := value(ctx, t, "find a point", chromedp.Evaluate[struct{ X, Y float64 }](`(() => { const b = document.querySelectorAll("figure svg .a1 .hit")[1].getBoundingClientRect(); return {X: b.x + b.width / 2, Y: b.y + b.height / 2} })()`))
	run("hover", chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	truth("the tip has the value", `!document.getElementById("tip").hidden && /^B, 10 in flight: [0-9,]+\/s \[/.test(document.getElementById("tip").textContent)`)
	run("leave", chromedp.MouseEvent("mouseMoved", 2, 2))
	truth("the tip goes with the pointer", `document.getElementById("tip").hidden`)
	run("step", script(`document.querySelector("figure svg").focus()`), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	truth("arrow keys go from point to point", `/^A, 10 in flight: /.test(document.getElementById("tip").textContent)`)
	run("escape", chromedp.KeyEvent(kb.Escape))
	truth("escape hides the tip", `document.getElementById("tip").hidden`)

	// Legends.
	shown := `[...document.querySelectorAll("figure svg .s.a1")].filter((e) => e.getClientRects().length > 0).length`
	run("switch B off", script(`document.querySelector("button.arm.t1").click()`))
	truth("B is gone from every chart", shown+` === 0 && document.querySelector("button.arm.t1").getAttribute("aria-pressed") === "false"`)
	truth("A is not", `document.querySelector("figure svg .s.a0").getClientRects().length > 0`)
	run("switch B on by keyboard", script(`document.querySelector("button.arm.t1").focus()`), chromedp.KeyEvent(" "))
	truth("B is back", shown+` > 3`)

	// Tables.
	column := `[...document.querySelectorAll("#numbers ~ div table tbody tr")].map((tr) => tr.children[3].dataset.v)`
	head := `document.querySelectorAll("#numbers ~ div table th")[3]`
	run("sort", script(head+`.querySelector("button").click()`))
	truth("ascending", `(() => { const v = `+column+`.map(Number); return v.length === 4 && v.every((x, i) => i === 0 || v[i-1] <= x) && `+head+`.getAttribute("aria-sort") === "ascending" })()`)
	run("sort again", script(head+`.querySelector("button").click()`))
	truth("descending", `(() => { const v = `+column+`.map(Number); return v.every((x, i) => i === 0 || v[i-1] >= x) && `+head+`.getAttribute("aria-sort") === "descending" })()`)

	// What is incorrect is struck out, for the eye as well.
	truth("struck out", `getComputedStyle(document.querySelector("td s")).textDecorationLine === "line-through" && document.querySelectorAll("svg .cross").length > 0`)

	// Raw numbers.
	truth("result.json inside", `JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(document.querySelector('a[download="result.json"]').href.split(",")[1]), (c) => c.charCodeAt(0)))).schema === "inflight.result/1"`)

	colour := `getComputedStyle(document.body).backgroundColor`
	truth("light", colour+` === "rgb(255, 255, 255)"`)
	picture(ctx, t, "light")
	run("dark", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}))
	truth("dark", colour+` === "rgb(22, 22, 24)" && getComputedStyle(document.querySelector("svg .s.a0")).color !== "rgb(0, 114, 178)"`)
	picture(ctx, t, "dark")
	run("light again", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}))

	run("telephone", call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 1, Mobile: true}))
	truth("no horizontal scroll", `document.documentElement.scrollWidth <= 360`)
	truth("nothing hangs out but inside its own scroller", `[...document.querySelectorAll("main *")].filter((e) => !e.closest(".wide") && !e.closest("svg") && !e.matches(".hidden") && !e.closest("thead") && e.getBoundingClientRect().right > 361).length === 0`)
	picture(ctx, t, "360")
	run("desk", call(emulation.ClearDeviceMetricsOverride, cdp.Empty{}))

	run("print", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
	truth("links to files are not printed", `getComputedStyle(document.querySelector(".screen")).display === "none"`)
	picture(ctx, t, "print")
	pdf := value(ctx, t, "print", chromedp.PrintToPDF())
	if !strings.HasPrefix(string(pdf), "%PDF-") {
		t.Errorf("printing gave %d bytes that are no PDF", len(pdf))
	}
	keepFile(t, "page.pdf", pdf)

	accessible(ctx, t)

	run("screen", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}))
	manyArms(ctx, t, dir)

	if len(bad.list) > 0 {
		t.Errorf("the page is not quiet:\n%s", strings.Join(bad.list, "\n"))
	}
}

// manyArms: with more arms than fit beside one another, tables have a line for each, and none scrolls sideways.
func manyArms(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	address := writePage(t, dir, "six.html", synth.Fixtures()["six-arms"])
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("open a page of six arms: %v", err)
	}
	for _, width := range []int64{1100, 800, 360} {
		if err := chromedp.Do(ctx, call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})); err != nil {
			t.Fatalf("make the window %d wide: %v", width, err)
		}
		wide := value(ctx, t, "measure", chromedp.Evaluate[string](`[document.documentElement, ...document.querySelectorAll(".wide")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.tagName + " " + e.textContent.trim().slice(0, 60) + ": " + e.scrollWidth + " of " + e.clientWidth).join("; ")`))
		if wide != "" {
			t.Errorf("at %d px: %s", width, wide)
		}
		picture(ctx, t, fmt.Sprintf("six-%d", width))
	}
}

// writePage renders a result and returns the address of its page.
func writePage(t *testing.T, dir, name string, r *result.Result) (address string) {
	t.Helper()
	files, err := Render(r)
	if err != nil {
		t.Fatal(err)
	}
	page := files[slices.IndexFunc(files, func(f File) bool { return f.Name == HTMLFile })].Data
	if len(page) >= 1<<20 {
		t.Errorf("%s has %d bytes, want less than 1 MiB", name, len(page))
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	return "file://" + filepath.ToSlash(path)
}

// accessible looks at what a screen reader is told: one first heading, and a name for everything that is used or looked at.
func accessible(ctx context.Context, t *testing.T) {
	t.Helper()
	nodes := value(ctx, t, "accessibility", func(ctx context.Context, target *chromedp.Target) ([]*accessibility.Node, error) {
		tree, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return tree.Nodes, err
	})
	text := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal([]byte(v.Value), &s)
		}
		return s
	}
	count := map[string]int{}
	for _, n := range nodes {
		if n.Ignored {
			continue
		}
		role := text(n.Role)
		count[role]++
		switch role {
		case "image", "img", "button", "link", "table", "columnheader", "region", "heading":
			if strings.TrimSpace(text(n.Name)) == "" {
				t.Errorf("a %s without a name", role)
			}
		}
		if role == "heading" {
			for _, p := range n.Properties {
				if p.Name == "level" && string(p.Value.Value) == "1" {
					count["first heading"]++
				}
			}
		}
	}
	if count["first heading"] != 1 || count["main"] != 1 || count["table"] < 3 || count["columnheader"] < 10 || count["rowheader"] < 4 || count["image"]+count["img"] < 8 || count["button"] < 10 {
		t.Errorf("the page's roles: %v", count)
	}
}

// picture keeps what the page looks like where INFLIGHT_PICTURES names a directory: they are to be looked at.
func picture(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if os.Getenv("INFLIGHT_PICTURES") == "" {
		return
	}
	keepFile(t, name+".png", value(ctx, t, "picture", chromedp.FullScreenshot(100)))
}

func keepFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if dir := os.Getenv("INFLIGHT_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Error(err)
		}
	}
}
