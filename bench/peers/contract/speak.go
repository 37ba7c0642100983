// The part of the contract (bench/peers/__init__.py) that programs in Go share.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const callers = 16

type Order struct {
	Do      string `json:"do"`
	Notes   string `json:"notes"`
	Each    bool   `json:"each"`
	Way     string `json:"way"`
	Jobs    int    `json:"jobs"`
	First   int    `json:"first"`
	End     int    `json:"end"`
	DueMs   int64  `json:"dueMs"`
	StepUs  int64  `json:"stepUs"`
	WaitMs  int64  `json:"waitMs"`
	UntilMs int64  `json:"untilMs"`
}

type Answer map[string]any

type Numbered struct {
	Number int
	Due    time.Time
}

func (order *Order) numbered() []Numbered {
	jobs := make([]Numbered, order.Jobs)
	for place := range jobs {
		jobs[place] = Numbered{order.First + place, time.UnixMilli(order.DueMs + int64(place)*order.StepUs/1000)}
	}
	return jobs
}

// The calls of handlers, as lines.
type Notes struct {
	lock    sync.Mutex
	file    *os.File
	each    bool
	lines   []byte
	started atomic.Int64
}

func newNotes(path string, each bool) (*Notes, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return &Notes{file: file, each: each}, err
}

func (notes *Notes) handle(number int, waitMs int64) {
	notes.started.Add(1)
	notes.note(number, "\n")
	if waitMs > 0 {
		time.Sleep(time.Duration(waitMs) * time.Millisecond)
		notes.note(number, " end\n")
	}
}

func (notes *Notes) note(number int, rest string) {
	now := time.Now().UnixMicro()
	notes.lock.Lock()
	defer notes.lock.Unlock()
	notes.lines = strconv.AppendInt(notes.lines, int64(number), 10)
	notes.lines = append(notes.lines, ' ')
	notes.lines = strconv.AppendInt(notes.lines, now, 10)
	notes.lines = append(notes.lines, rest...)
	if notes.each {
		notes.writeLocked()
	}
}

func (notes *Notes) write() {
	notes.lock.Lock()
	defer notes.lock.Unlock()
	notes.writeLocked()
}

func (notes *Notes) writeLocked() {
	if _, err := notes.file.Write(notes.lines); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	notes.lines = notes.lines[:0]
}

// One job a call; each caller waits for its answer before it calls again.
func byCallers(jobs []Numbered, callers int, create func(Numbered) error) error {
	var next atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		go func() {
			for {
				place := int(next.Add(1)) - 1
				if place >= len(jobs) {
					errs <- nil
					return
				}
				if err := create(jobs[place]); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var failed error
	for range callers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func ownPids() Answer {
	own := []int{os.Getpid()}
	return Answer{"pids": map[string][]int{"worker": own, "scheduler": own}}
}

// `orders` has a function for each order that the peer has a use for.
func speak(orders map[string]func(context.Context, *Order) (Answer, error)) {
	out := os.NewFile(1, "answers")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var order Order
		begun := time.Now()
		answer := Answer{}
		err := json.Unmarshal(lines.Bytes(), &order)
		if do := orders[order.Do]; err == nil && do != nil {
			var found Answer
			if found, err = do(context.Background(), &order); found != nil {
				answer = found
			}
		}
		answer["done"] = order.Do
		if order.Do == "create" {
			answer["sec"] = time.Since(begun).Seconds()
		}
		if err != nil {
			answer = Answer{"failed": err.Error()}
		}
		line, _ := json.Marshal(answer)
		_, _ = out.Write(append(line, '\n'))
		if order.Do == "end" {
			return
		}
	}
}
