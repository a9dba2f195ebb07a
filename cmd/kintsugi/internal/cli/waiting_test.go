package cli

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What a run waits for is reported at once, then every ten seconds, and no longer once it is there.
func TestWhatIsWaitedForIsSaidAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, words, said := time.Now(), make(chan string), []string(nil)
		go SayWaits(t.Context(), words, func(word string, news bool) {
			said = append(said, fmt.Sprintf("%v %q %v", time.Since(start), word, news))
		})
		time.Sleep(15 * time.Second)
		words <- "a"
		time.Sleep(24 * time.Second)
		words <- "b"
		time.Sleep(11 * time.Second)
		words <- ""
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{`15s "a" true`, `25s "a" false`, `35s "a" false`, `39s "b" true`, `49s "b" false`, `50s "" true`}
		if !slices.Equal(said, want) {
			t.Errorf("it said\n%q\nwant\n%q", said, want)
		}
	})
}

func TestWhatTakesLongSaysSoMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		done := Meanwhile(func(took time.Duration) { said = append(said, fmt.Sprint(took)) })
		time.Sleep(25 * time.Second)
		done()
		time.Sleep(time.Minute)
		if !slices.Equal(said, []string{"10s", "20s"}) {
			t.Error(said)
		}
	})
}
