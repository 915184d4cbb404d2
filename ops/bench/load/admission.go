package main

// Admission by others, for the time of a run: one mutating and one validating webhook, and policies. The webhooks are
// served by this program over TLS with HTTP/2 and HTTP/1.1. All are limited to the namespace of the run, and removed at
// its end.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var admissionOptions struct {
	webhooks      bool
	policies      int
	otherPolicies int
}

func init() {
	flag.BoolVar(&admissionOptions.webhooks, "webhooks", false, "ask one mutating and one validating webhook about each creation")
	flag.IntVar(&admissionOptions.policies, "policies", 0, "validating policies of three expressions that match each creation")
	flag.IntVar(&admissionOptions.otherPolicies, "other-policies", 0, "validating policies for another resource")
}

const (
	admissionGroup = "/apis/admissionregistration.k8s.io/v1/"
	refusedName    = "refused-by-admission"
	activeTimeout  = 30 * time.Second
)

// webhookDelay is the time in nanoseconds for which the mutating webhook holds its answer back.
var webhookDelay atomic.Int64

// created are the paths of what setUpAdmission has created.
var created []string

// setUpAdmission registers what the flags say, and waits until the server obeys it.
func setUpAdmission(o options) error {
	if admissionOptions.webhooks {
		url, bundle, err := serveWebhooks()
		if err != nil {
			return err
		}
		for _, kind := range []string{"Mutating", "Validating"} {
			collection, configuration := webhookConfiguration(o.namespace, kind, url, bundle)
			if err := register(o, collection, configuration); err != nil {
				return err
			}
		}
	}
	for i := range admissionOptions.otherPolicies {
		if err := registerPolicy(o, fmt.Sprintf("bench-other-%s-%03d", runID, i), "secrets"); err != nil {
			return err
		}
	}
	for i := range admissionOptions.policies {
		if err := registerPolicy(o, fmt.Sprintf("bench-%s-%03d", runID, i), "configmaps"); err != nil {
			return err
		}
	}
	if admissionOptions.webhooks || admissionOptions.policies > 0 {
		return untilRefused(o)
	}
	if admissionOptions.otherPolicies > 0 {
		time.Sleep(2 * time.Second) // kube-apiserver compiles policies once a second
	}
	return nil
}

// removeAdmission removes what setUpAdmission has created.
func removeAdmission(o options) {
	c, err := o.target.dial()
	for ; err == nil && len(created) > 0; created = created[1:] {
		_, _, err = c.exchange(o.target.render(nil, "DELETE", created[0], "", nil))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load: removing webhooks and policies:", err)
	}
}

// untilRefused tries to create an object that every webhook and policy refuses, until the server does so.
func untilRefused(o options) error {
	c, err := o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	body := appendConfigMap(nil, o.namespace, refusedName, "")
	var status int
	for until := time.Now().Add(activeTimeout); err == nil && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		status, _, err = c.exchange(o.target.render(nil, "POST", configMapPath(o.namespace)+"?dryRun=All", "", body))
		if err == nil && status != 201 {
			time.Sleep(2 * time.Second) // for the other policies, and the other processes of the server
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("webhooks and policies have no effect after %s: %d", activeTimeout, status)
	}
	return err
}

type document = map[string]any

func register(o options, collection string, object document) error {
	name := object["metadata"].(document)["name"].(string)
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	c, err := o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	status, answer, err := c.exchange(o.target.render(nil, "POST", admissionGroup+collection, "", body))
	if err == nil && status != 201 {
		err = fmt.Errorf("creating %s: %d %.300s", name, status, answer)
	}
	created = append(created, admissionGroup+collection+"/"+name)
	return err
}

func selector(namespace string) document {
	return document{"matchLabels": document{"kubernetes.io/metadata.name": namespace}}
}

func creations(resource string) []document {
	return []document{{
		"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{resource},
	}}
}

func webhookConfiguration(namespace, kind, url string, bundle []byte) (string, document) {
	lower := map[string]string{"Mutating": "mutating", "Validating": "validating"}[kind]
	webhook := document{
		"name": lower + ".bench.example.com", "rules": creations("configmaps"), "sideEffects": "None",
		"admissionReviewVersions": []string{"v1"}, "namespaceSelector": selector(namespace), "timeoutSeconds": 30,
		"clientConfig": document{"url": url + "/" + lower, "caBundle": bundle},
	}
	return lower + "webhookconfigurations", document{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "WebhookConfiguration",
		"metadata": document{"name": "bench-" + runID}, "webhooks": []document{webhook},
	}
}

func registerPolicy(o options, name, resource string) error {
	policy := document{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": document{"name": name},
		"spec": document{
			"matchConstraints": document{"resourceRules": creations(resource), "namespaceSelector": selector(o.namespace)},
			"validations": []document{
				{"expression": "!has(object.metadata.labels) || object.metadata.labels.all(k, k.size() < 64)"},
				{"expression": "object.data.all(k, object.data[k].size() < 100000)", "message": "too long"},
				{"expression": "object.metadata.name != '" + refusedName + "'"},
			},
		},
	}
	if err := register(o, "validatingadmissionpolicies", policy); err != nil {
		return err
	}
	return register(o, "validatingadmissionpolicybindings", document{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": document{"name": name}, "spec": document{"policyName": name, "validationActions": []string{"Deny"}},
	})
}

// -- the webhook server -----------------------------------------------------------------------------------------------

// serveWebhooks returns the URL of a new server, and its certificate as the bundle of its authority.
func serveWebhooks() (string, []byte, error) {
	certificate, bundle, err := selfSigned()
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/metadata/labels","value":{"bench":"yes"}}]`))
	mux.HandleFunc("/mutating", func(w http.ResponseWriter, r *http.Request) {
		if delay := webhookDelay.Load(); delay > 0 {
			time.Sleep(time.Duration(delay))
		}
		answer(w, r, `,"patchType":"JSONPatch","patch":"`+patch+`"`)
	})
	mux.HandleFunc("/validating", func(w http.ResponseWriter, r *http.Request) { answer(w, r, "") })
	server := &http.Server{
		Handler:   mux,
		ErrorLog:  log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	go server.ServeTLS(listener, "", "")
	return "https://" + listener.Addr().String(), bundle, nil
}

// answer allows a review with more members of the response, and refuses one object.
func answer(w http.ResponseWriter, r *http.Request, more string) {
	var review struct {
		Request struct{ UID, Name string }
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	allowed := strconv.FormatBool(review.Request.Name != refusedName)
	io.WriteString(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`+
		review.Request.UID+`","allowed":`+allowed+more+`}}`)
}

func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, bundle, nil
}
