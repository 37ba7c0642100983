// A worker in Go: it takes executions of pool "go" from a Noonday server and runs them. Standard library only.
//
//	NOONDAY_TOKEN=$(noonday token --scopes worker) go run . http://127.0.0.1:8080
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

type Execution struct {
	ID       string          `json:"executionId"`
	Lease    string          `json:"lease"`
	LeaseSec float64         `json:"leaseSec"`
	Token    string          `json:"token"` // a fencing token: larger in every later dispatch
	Handler  string          `json:"handler"`
	Attempt  int             `json:"attempt"`
	Payload  json.RawMessage `json:"payload"`
}

// A Handler returns a result, which is encoded as JSON. Its context ends when the execution must end.
type Handler func(context.Context, Execution) (any, error)

var (
	server, token = "http://127.0.0.1:8080", os.Getenv("NOONDAY_TOKEN")
	errLeaseLost  = errors.New("the lease is lost")
	handlers      = map[string]Handler{"greet": greet, "wait": wait}
)

func greet(_ context.Context, execution Execution) (any, error) {
	var payload struct{ Name string }
	if err := json.Unmarshal(execution.Payload, &payload); err != nil || payload.Name == "" {
		return nil, fmt.Errorf("the payload needs a name: %s", execution.Payload)
	}
	return map[string]string{"greeting": "Hello, " + payload.Name}, nil
}

func wait(ctx context.Context, _ Execution) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// post sends a request, and again until the server answers: every request of a worker may be repeated.
func post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	for ; err == nil; time.Sleep(time.Second) {
		request, _ := http.NewRequestWithContext(ctx, "POST", server+path, bytes.NewReader(text))
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, failed := http.DefaultClient.Do(request)
		if failed != nil && ctx.Err() != nil {
			return ctx.Err()
		} else if failed != nil {
			log.Print(failed)
			continue
		}
		read, _ := io.ReadAll(response.Body)
		response.Body.Close()
		switch {
		case response.StatusCode == http.StatusConflict:
			return fmt.Errorf("%w: %s", errLeaseLost, read)
		case response.StatusCode >= 500:
			log.Printf("%s: %s", response.Status, read)
		case response.StatusCode >= 400:
			return fmt.Errorf("%s: %s", response.Status, read)
		case len(read) > 0 && answer != nil:
			return json.Unmarshal(read, answer)
		default:
			return nil
		}
	}
	return err
}

func run(execution Execution) error {
	path, lease := "/v1/executions/"+execution.ID, map[string]any{"lease": execution.Lease}
	if err := post(context.Background(), path+"/start", lease, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var beating sync.WaitGroup
	beating.Add(1)
	isCancelled := false
	ended := make(chan struct{})
	go func() { // heartbeats, three in the time of a lease
		defer beating.Done()
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(execution.LeaseSec / 3 * float64(time.Second))):
			}
			var state struct{ Cancel *string }
			if err := post(ctx, path+"/heartbeat", lease, &state); err != nil || state.Cancel != nil {
				isCancelled = true
				cancel()
				return
			}
		}
	}()
	result, err := handlers[execution.Handler](ctx, execution)
	close(ended)
	beating.Wait()
	if err != nil {
		failure := map[string]any{"lease": execution.Lease, "message": err.Error(), "cancelled": isCancelled}
		return post(context.Background(), path+"/fail", failure, nil)
	}
	return post(context.Background(), path+"/complete", map[string]any{"lease": execution.Lease, "result": result}, nil)
}

func main() {
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	stop, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	host, _ := os.Hostname()
	names := []string{}
	for name := range handlers {
		names = append(names, name)
	}
	request := map[string]any{"worker": fmt.Sprintf("%s-%d", host, os.Getpid()), "handlers": names}
	var slots sync.WaitGroup
	for range [4]int{} { // so many executions at once
		slots.Add(1)
		go func() {
			defer slots.Done()
			for stop.Err() == nil {
				var taken struct{ Executions []Execution }
				if err := post(stop, "/v1/pools/go/take", request, &taken); err != nil && stop.Err() == nil {
					log.Print(err)
					time.Sleep(time.Second)
				}
				for _, execution := range taken.Executions {
					log.Printf("%s %s attempt %d: %v", execution.Handler, execution.ID, execution.Attempt, run(execution))
				}
			}
		}()
	}
	slots.Wait() // after a signal, started executions end
}
