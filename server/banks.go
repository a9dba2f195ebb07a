package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// This file is about the memory of an Outside: what it takes of the system, and which of its banks a
// step may write to.

// take notes that versions of this process lie in the banks of the file, which has this header.
func (o *Outside) take(h shm.Header) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds, o.used = h, true
	return o.reserve(2)
}

// format empties the file, without touching what is in banks, and takes memory for so many banks.
func (o *Outside) format(h shm.Header, banks int) (*shm.Memory, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.useless = false
	err := error(nil)
	if !o.used {
		err = o.empty() // another life may have taken memory for more than this one needs
	}
	if err == nil {
		err = o.file.Grow(h.Bytes())
	}
	if err == nil {
		lo, _ := h.Bank(0)
		err = o.file.Reserve(0, lo)
	}
	if err == nil {
		err = o.file.Reserve(h.Records())
	}
	if o.holds = h; err == nil {
		err = o.reserve(banks)
	}
	if err != nil && !o.used {
		return nil, errors.Join(err, o.empty())
	}
	if err != nil {
		shm.Erase(o.file.Bytes())
		return nil, err
	}
	o.used = true
	return shm.Format(o.file.Bytes(), h), nil
}

// reserve takes memory for the first n banks. The caller has locked mu.
func (o *Outside) reserve(n int) error {
	for ; o.reserved < n; o.reserved++ {
		if o.reserved == shm.Banks {
			return fmt.Errorf("all %d banks for the optimizer's state are in use", shm.Banks)
		}
		if err := o.file.Reserve(o.holds.Bank(o.reserved)); err != nil {
			return err
		}
	}
	return nil
}

// bank returns a bank that is neither pinned nor one of those in use.
func (o *Outside) bank(use []int) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 0; ; i++ {
		if err := o.reserve(i + 1); err != nil {
			return 0, err
		}
		if o.pins[i] == 0 && !slices.Contains(use, i) {
			return i, nil
		}
	}
}

// stepBanks is how many banks steps need: of the version that stays, of the one that is made, and of
// an earlier try at that one.
const stepBanks = 3

// pin keeps what is in a bank. It takes memory now for the step that will need another bank, since
// a save may fail and a step may not.
func (o *Outside) pin(bank int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	pinned := 0
	for i, n := range o.pins {
		if n > 0 || i == bank {
			pinned++
		}
	}
	if pinned > shm.Banks-stepBanks {
		return fmt.Errorf("the optimizer's state of %d versions is being read already: wait until a save has ended", pinned-1)
	}
	if err := o.reserve(pinned + stepBanks - 1); err != nil {
		return err
	}
	o.pins[bank]++
	return nil
}

func (o *Outside) unpin(bank int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pins[bank]--
	_ = o.emptyIfUseless() // it is emptied again before it is used
}

// drop gives up what the file holds, which no version of this process uses any more, apart from
// those that are pinned.
func (o *Outside) drop() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	shm.Erase(o.file.Bytes())
	o.useless = true
	return o.emptyIfUseless()
}

func (o *Outside) emptyIfUseless() error {
	if !o.useless || o.pins != [shm.Banks]int{} {
		return nil
	}
	o.useless, o.used = false, false
	return o.empty()
}

func (o *Outside) empty() error {
	o.reserved = 0
	return o.file.Empty()
}
