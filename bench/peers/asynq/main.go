// Asynq, through its client and server.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	prefix = "asynq:{default}:"
	page   = 5_000
)

type payload struct {
	N int   `json:"n"`
	W int64 `json:"w,omitempty"`
}

var (
	notes     *Notes
	options   asynq.RedisConnOpt
	client    *asynq.Client
	server    *asynq.Server
	scheduler *asynq.Scheduler
	keys      *redis.Client
	crons     int
)

func task(number int, waitMs int64) *asynq.Task {
	body, _ := json.Marshal(payload{number, waitMs})
	return asynq.NewTask("note", body)
}

func id(number int) string { return fmt.Sprintf("n%d", number) }

func work(_ context.Context, order *Order) (Answer, error) {
	var err error
	if notes, err = newNotes(order.Notes, order.Each); err != nil {
		return nil, err
	}
	server = asynq.NewServer(options, asynq.Config{
		Concurrency:              100,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		TaskCheckInterval:        100 * time.Millisecond,
		LogLevel:                 asynq.ErrorLevel,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc("note", func(_ context.Context, task *asynq.Task) error {
		var body payload
		if err := json.Unmarshal(task.Payload(), &body); err != nil {
			return err
		}
		notes.handle(body.N, body.W)
		return nil
	})
	if err = server.Start(mux); err != nil {
		return nil, err
	}
	if crons > 0 {
		scheduler = asynq.NewScheduler(options, &asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel})
		for number := range crons {
			if _, err = scheduler.Register("* * * * *", task(number, 0)); err != nil {
				return nil, err
			}
		}
		err = scheduler.Start()
	}
	return ownPids(), err
}

func create(_ context.Context, order *Order) (Answer, error) {
	jobs := order.numbered()
	at := map[string]int{"single": 1, "callers": callers}[order.Way]
	err := byCallers(jobs, at, func(job Numbered) error {
		_, err := client.Enqueue(task(job.Number, order.WaitMs), asynq.ProcessAt(job.Due), asynq.TaskID(id(job.Number)))
		return err
	})
	return Answer{"created": len(jobs)}, err
}

func addCrons(_ context.Context, order *Order) (Answer, error) {
	crons = order.Jobs
	return nil, nil
}

func look(ctx context.Context, order *Order) (Answer, error) {
	until := strconv.FormatInt(order.UntilMs/1000, 10)
	pipe := keys.Pipeline()
	counts := []*redis.IntCmd{
		pipe.LLen(ctx, prefix+"pending"), pipe.LLen(ctx, prefix+"active"), pipe.ZCard(ctx, prefix+"retry"),
		pipe.ZCount(ctx, prefix+"scheduled", "-inf", until),
	}
	_, err := pipe.Exec(ctx)
	open := false
	for _, count := range counts {
		open = open || count.Val() > 0
	}
	return Answer{"open": open}, err
}

// A task that is done is deleted.
func count(ctx context.Context, order *Order) (Answer, error) {
	var left int64
	for at := order.First; at < order.End; at += page {
		pipe := keys.Pipeline()
		var found []*redis.IntCmd
		for number := at; number < min(at+page, order.End); number++ {
			found = append(found, pipe.Exists(ctx, prefix+"t:"+id(number)))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		for _, each := range found {
			left += each.Val()
		}
	}
	return Answer{"recorded": nil, "left": left, "lastMs": nil}, nil
}

func started(context.Context, *Order) (Answer, error) {
	return Answer{"started": notes.started.Load()}, nil
}

func end(context.Context, *Order) (Answer, error) {
	if scheduler != nil {
		scheduler.Shutdown()
	}
	if notes != nil {
		server.Shutdown()
		notes.write()
	}
	return nil, nil
}

func main() {
	var err error
	url := os.Getenv("BENCH_STORE")
	options, err = asynq.ParseRedisURI(url)
	if err != nil {
		panic(err)
	}
	parsed, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	keys = redis.NewClient(parsed)
	client = asynq.NewClient(options)
	speak(map[string]func(context.Context, *Order) (Answer, error){
		"work": work, "create": create, "crons": addCrons, "started": started, "look": look, "count": count, "end": end,
	})
}
