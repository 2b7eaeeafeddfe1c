// Oracle for discovery: runs Prometheus' own discovery and relabelling over a configuration, without scraping, and prints
// its targets as a line of JSON after each change, in the form of Prometheus' answer to /api/v1/targets.
//
// Usage: oracle CONFIGURATION. It ends at the end of its standard input, so that it never outlives the test.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/consul"
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/scrape"
)

type active struct {
	ScrapePool       string            `json:"scrapePool"`
	ScrapeURL        string            `json:"scrapeUrl"`
	Labels           map[string]string `json:"labels"`
	DiscoveredLabels map[string]string `json:"discoveredLabels"`
}

type dropped struct {
	DiscoveredLabels map[string]string `json:"discoveredLabels"`
}

type answer struct {
	Active   []active  `json:"activeTargets"`
	Dropped  []dropped `json:"droppedTargets"`
	Failures []string  `json:"failures"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	logger := log.NewLogfmtLogger(log.NewSyncWriter(os.Stderr))
	found, err := config.LoadFile(os.Args[1], false, false, logger)
	if err != nil {
		return err
	}
	jobs := map[string]*config.ScrapeConfig{}
	discoveries := map[string]discovery.Configs{}
	for _, one := range found.ScrapeConfigs {
		jobs[one.JobName] = one
		discoveries[one.JobName] = one.ServiceDiscoveryConfigs
	}
	manager := discovery.NewManager(ctx, logger)
	go func() { _ = manager.Run() }()
	if err := manager.ApplyConfig(discoveries); err != nil {
		return err
	}
	lines := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			return nil
		case groups := <-manager.SyncCh():
			if err := lines.Encode(targets(jobs, groups)); err != nil {
				return err
			}
		}
	}
}

// targets does what scrapePool.Sync does before it begins to scrape.
func targets(jobs map[string]*config.ScrapeConfig, groups map[string][]*targetgroup.Group) answer {
	told := answer{Active: []active{}, Dropped: []dropped{}, Failures: []string{}}
	for name, found := range groups {
		// Relabelling in this version overwrites the labels of before, so these are made without rules.
		bare := *jobs[name]
		bare.RelabelConfigs = nil
		for _, group := range found {
			for _, target := range group.Targets {
				one := &targetgroup.Group{Source: group.Source, Labels: group.Labels, Targets: []model.LabelSet{target}}
				before, _ := scrape.TargetsFromGroup(one, &bare, false)
				made, failures := scrape.TargetsFromGroup(one, jobs[name], false)
				for _, failure := range failures {
					told.Failures = append(told.Failures, failure.Error())
				}
				if len(failures) > 0 || len(before) == 0 || len(made) == 0 {
					continue
				}
				discovered := before[0].DiscoveredLabels().Map()
				if labels := made[0].Labels(); labels.IsEmpty() {
					told.Dropped = append(told.Dropped, dropped{discovered})
				} else {
					told.Active = append(told.Active, active{name, made[0].URL().String(), labels.Map(), discovered})
				}
			}
		}
	}
	return told
}
