// Command webhook-server is a webhook server as operators have one, on the unchanged webhook package of
// controller-runtime: it labels Pods, and refuses those of images without a tag.
//
//	webhook-server --directory CERTIFICATES --port PORT
//
// CERTIFICATES holds tls.crt and tls.key. The package watches them, and serves new ones without a restart.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	directory := flag.String("directory", "", "the folder of tls.crt and tls.key")
	port := flag.Int("port", 0, "the port on 127.0.0.1")
	flag.Parse()
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(*directory, *port); err != nil {
		fmt.Fprintln(os.Stderr, "webhook-server:", err)
		os.Exit(1)
	}
}

func run(directory string, port int) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	pods := pods{admission.NewDecoder(scheme)}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: directory})
	server.Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(pods.label)})
	server.Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(pods.check)})
	return server.Start(context.Background())
}

type pods struct{ decoder admission.Decoder }

// label adds a label, in a patch made of the difference, as most operators make it.
func (p pods) label(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := p.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["example.com/created-by"] = strings.ReplaceAll(request.UserInfo.Username, ":", "-")
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

// check refuses images without a tag, and deletions of protected Pods.
func (p pods) check(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if request.Operation == admissionv1.Delete {
		if err := p.decoder.DecodeRaw(request.OldObject, pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if pod.Annotations["example.com/protected"] == "yes" {
			return admission.Denied("it is protected")
		}
		return admission.Allowed("")
	}
	if err := p.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	for _, container := range pod.Spec.Containers {
		if !strings.Contains(container.Image, ":") {
			return admission.Denied(fmt.Sprintf("the image of %s has no tag", container.Name))
		}
		if strings.HasSuffix(container.Image, ":latest") {
			return admission.Allowed("").WithWarnings("the tag latest moves")
		}
	}
	return admission.Allowed("")
}
